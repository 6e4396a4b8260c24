// TORCS's own drivers: a race as `torcs -r` runs it, with the same start and the same order of calls, hence lap times.

#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <robot.h>
#include <robottools.h>
#include <tgf.h>

#include "cars.h"
#include "stage.h"

namespace {

// What a row of a trace holds; columns.py has the same list, and both sides compare them when a worker starts.
#define TRACE_COLUMNS(COLUMN) \
    COLUMN(time, lap_now) \
    COLUMN(x, c.DynGCg.pos.x) \
    COLUMN(y, c.DynGCg.pos.y) \
    COLUMN(yaw, c.DynGCg.pos.az) \
    COLUMN(speed, c.DynGC.vel.x) \
    COLUMN(distance, distance_on_track(c)) \
    COLUMN(offset, c.trkPos.toMiddle) \
    COLUMN(steer, c.steer.steer / c.steer.steerLock) \
    COLUMN(throttle, stage_elt.ctrl.accelCmd) \
    COLUMN(brake, stage_elt.ctrl.brakeCmd) \
    COLUMN(gear, c.transmission.gearbox.gear) \
    COLUMN(wheels_out, wheels_out(c))

#define COLUMN_NAME(name, value) #name,
#define COLUMN_VALUE(name, value) double(value),
const std::vector<std::string> TRACE_NAMES = {TRACE_COLUMNS(COLUMN_NAME)};

struct Laps {
    std::vector<double> times, off, wall, damage;  // per lap; the first begins at a standstill behind the line
    std::vector<double> trace;                     // rows at 10 Hz of the last lap
};

tRobotItf open_driver(const char *name, int index) {
    const std::string path = std::string(GetLibDir()) + "drivers/" + name + "/" + name + ".so";
    void *library = dlopen(path.c_str(), RTLD_NOW);
    if (!library) fail(std::string("cannot open the driver: ") + dlerror());
    auto entry = (int (*)(tModInfo *))dlsym(library, name);
    if (!entry) fail(path + " is no driver");
    tModInfo info[MAX_MOD_ITF];
    memset(info, 0, sizeof info);
    entry(info);
    tRobotItf robot;
    memset(&robot, 0, sizeof robot);
    for (int i = 0; i < MAX_MOD_ITF; i++)
        if (info[i].name && info[i].index == index) info[i].fctInit(index, &robot);
    if (!robot.rbDrive) fail(std::string(name) + " has no driver " + std::to_string(index));
    return robot;
}

// Show the driver the track, and give it the car, with its own setup of it if wanted.
void take_seat(tRobotItf &robot, const char *name, int index, void *params, int laps, bool own_setup) {
    situation._raceType = RM_TYPE_PRACTICE;
    situation._totLaps = laps;
    void *setup = nullptr;
    robot.rbNewTrack(index, track, params, &setup, &situation);
    if (setup && own_setup)
        params = GfParmMergeHandles(params, setup, GFPARM_MMODE_SRC | GFPARM_MMODE_DST | GFPARM_MMODE_RELSRC |
                                                       GFPARM_MMODE_RELDST);
    configure(params);
    stage_elt.robot = &robot;
    stage_elt._driverIndex = index;
    stage_elt._remainingLaps = laps;
    stage_elt._pos = 1;
    stage_elt._commitBestLapTime = true;
    strncpy(stage_elt._modName, name, MAX_NAME_LEN - 1);
}

// The first place of the starting grid of a practice session.
void put_on_grid() {
    tTrackSeg *turn = track->seg->next;
    while (turn->type == TR_STR) turn = turn->next;
    void *own = track->params;
    const char *pole = GfParmGetStr(own, "Starting Grid", "pole position side", turn->type == TR_LFT ? "left" : "right");
    const int rows = std::max(1, (int)GfParmGetNum(own, "Starting Grid", "rows", nullptr, 1));
    const tdble behind = GfParmGetNum(own, "Starting Grid", "distance to start", nullptr, 100);
    const tdble above = GfParmGetNum(own, "Starting Grid", "initial height", nullptr, 0.2);
    const bool left = strcmp(pole, "left") == 0;
    const tdble a = left ? track->width : 0, b = left ? -track->width : track->width;
    const tdble from = track->length - behind;
    tTrackSeg *seg = track->seg;
    while (from < seg->lgfromstart) seg = seg->prev;
    stage_elt._trkPos.seg = seg;
    stage_elt._trkPos.toRight = a + b / (rows + 1);
    stage_elt._trkPos.toStart = from - seg->lgfromstart;
    if (seg->type != TR_STR) stage_elt._trkPos.toStart /= seg->radius;
    RtTrackLocal2Global(&stage_elt._trkPos, &stage_elt._pos_X, &stage_elt._pos_Y, TR_TORIGHT);
    stage_elt._yaw = seg->angle[TR_ZS];
    if (seg->type == TR_RGT) stage_elt._yaw -= stage_elt._trkPos.toStart;
    if (seg->type == TR_LFT) stage_elt._yaw += stage_elt._trkPos.toStart;
    stage_elt._pos_Z = RtTrackHeightL(&stage_elt._trkPos) + above;
    NORM0_2PI(stage_elt._yaw);
}

void give_pit() {
    if (track->pits.type != TR_PIT_ON_TRACK_SIDE) return;
    tTrackOwnPit *pit = track->pits.driversPits;
    track->pits.driversPitsNb = 1;
    track->pits.carsPerPit = 1;
    pit->pitCarIndex = TR_PIT_STATE_FREE;
    pit->car[0] = &stage_elt;
    pit->freeCarIndex = 1;
    pit->lmin = pit->pos.seg->lgfromstart + pit->pos.toStart - track->pits.len / 2.0 + stage_elt._dimension_x / 2.0;
    if (pit->lmin > track->length) pit->lmin -= track->length;
    pit->lmax = pit->pos.seg->lgfromstart + pit->pos.toStart + track->pits.len / 2.0 - stage_elt._dimension_x / 2.0;
    if (pit->lmax > track->length) pit->lmax -= track->length;
    stage_elt._pit = pit;
}

// Settle on the springs, and be two seconds before the green light.
void stand_still() {
    SimUpdate(&situation, DT, -1);
    memset(&stage_clock, 0, sizeof stage_clock);
    stage_clock.before = stage_elt._trkPos.seg;
    memset(&stage_elt.ctrl, 0, sizeof stage_elt.ctrl);
    stage_elt.ctrl.brakeCmd = 1.0;
    for (int i = 0; i < (int)(1.0 / DT); i++) SimUpdate(&situation, DT, -1);
    situation.currentTime = -2.0;
    situation._raceState = RM_RACE_STARTING;
}

// One physics step of the race, the driver asked before it where it is time; `asked` is when that was last.
void race_step(tRobotItf &robot, int laps, double &asked) {
    situation.currentTime += DT;
    if (situation.currentTime < 0) {
        situation._raceState = RM_RACE_PRESTART;
    } else if (situation._raceState == RM_RACE_PRESTART) {
        situation._raceState = RM_RACE_RUNNING;
        situation.currentTime = asked = 0.0;
    }
    if (situation.currentTime - asked >= RCM_MAX_DT_ROBOTS) {
        situation.deltaTime = situation.currentTime - asked;
        robot.rbDrive(robot.index, &stage_elt, &situation);
        asked = situation.currentTime;
    }
    physics();
    stage_elt._laps = stage_clock.laps;
    stage_elt._remainingLaps = laps - stage_clock.laps;
    stage_elt._curLapTime = situation.currentTime - stage_clock.lap_began;
    stage_elt._distFromStartLine = distance_on_track(*stage);
    stage_elt._distRaced = (stage_clock.laps - stage_clock.backwards - 1) * track->length + stage_elt._distFromStartLine;
}

void add_trace_row(std::vector<double> &trace, double lap_now) {
    const tCar &c = *stage;
    const std::vector<double> row = {TRACE_COLUMNS(COLUMN_VALUE)};
    trace.insert(trace.end(), row.begin(), row.end());
}

Laps race_driver(std::string &xml, const char *name, int index, int laps, bool own_setup, double limit) {
    void *params = read_description(xml);
    tRobotItf robot = open_driver(name, index);
    take_seat(robot, name, index, params, laps, own_setup);
    put_on_grid();
    configure_physics();
    give_pit();
    robot.rbNewRace(robot.index, &stage_elt, &situation);
    stand_still();
    Laps result;
    double asked = -1.0;
    int done = 0;
    while (done < laps && situation.currentTime < limit) {
        race_step(robot, laps, asked);
        if (std::max(stage_clock.laps - 1, 0) > done) {
            done++;
            result.times.push_back(stage_clock.last_time);
            result.off.push_back(stage_clock.last_off);
            result.wall.push_back(stage_clock.last_wall);
            result.damage.push_back(stage->dammage);
            if (done < laps) result.trace.clear();
        }
        const double lap_now = situation.currentTime - stage_clock.lap_began;
        const bool due = std::lround(lap_now / DT) % CONTROL_EVERY == 0;
        if (done < laps && stage_clock.laps > 0 && due) add_trace_row(result.trace, lap_now);
    }
    return result;
}

}  // namespace
