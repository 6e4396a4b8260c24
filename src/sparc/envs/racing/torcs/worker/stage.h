// The stage: the one car that TORCS knows, the slots that take turns on it, and a step of its physics.
//
// TORCS keeps its cars in globals that point into one another. One car, the stage, lives where TORCS wants it; every
// slot is a copy of it that is put there for its turn. So N cars cannot see each other, a slot's step gives the same
// bits whatever the other slots do, and a snapshot fits into any slot of any process with the same car and track.

#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <car.h>
#include <raceman.h>
#include <sim.h>
#include <track.h>

namespace {

const double DT = RCM_MAX_DT_SIMU;  // s, a physics step

// What a row of state holds; simulator.py has the same list by name.
enum State {
    X, Y, ROLL, PITCH, YAW, VX, VY, VZ, ROLL_RATE, PITCH_RATE, YAW_RATE, AX, AY, AZ,
    DISTANCE, OFFSET, HALF_WIDTH, TRACK_HEADING, PROGRESS,
    GEAR, REVS, STEER, THROTTLE, BRAKE,
    SLIP_RATIO, SLIP_ANGLE = SLIP_RATIO + 4, LOAD = SLIP_ANGLE + 4, SPIN = LOAD + 4,
    WHEELS_OUT = SPIN + 4, OFF_TIME, WALL_TIME, DAMAGE, TIME, LAPS, LAP_TIME, LAP_OFF, LAP_WALL, LAP_NOW,
    STATE_SIZE
};

// The lap clock, as TORCS's race engine runs it, and the sums over a control step.
struct Clock {
    double time, lap_began, lap_off, lap_wall;     // of the lap under way
    double last_time, last_off, last_wall;         // of the last whole lap
    double off, wall;                              // s of the last control step
    tTrackSeg *before;
    int laps, backwards;                           // line crossings; how often the line was crossed the wrong way
};

struct Slot {
    tCar car, fresh_car;      // now; as configured
    tCarElt elt, fresh_elt;
    Clock clock;
    void *params;
    DtShapeRef shape;
};

tTrack *track;

tCar *stage;             // SimCarTable
tCarElt stage_elt;
tCarElt *stage_list[1] = {&stage_elt};
Clock stage_clock;
bool stage_solid = false;  // whether the collision library knows the stage
tSituation situation;
RmInfo race;

std::vector<Slot *> slots;

[[noreturn]] void fail(const std::string &message) {
    fprintf(stderr, "error: %s\n", message.c_str());
    exit(3);
}

void take_off_stage() {
    if (stage_solid) dtDeleteObject(stage);
    stage_solid = false;
}

void put_on_stage(const Slot &slot) {
    *stage = slot.car;
    stage_elt = slot.elt;
    stage_clock = slot.clock;
    situation.currentTime = slot.clock.time;
    // A new object each time: what the collision library remembers of one car must not reach the next.
    take_off_stage();
    dtCreateObject(stage, slot.shape);
    stage_solid = true;
    dtSelectObject(stage);
    dtLoadIdentity();
    dtMultMatrixf((const float *)stage_elt._posMat);
    dtProceed();
}

void leave_stage(Slot &slot) {
    slot.car = *stage;
    slot.elt = stage_elt;
    slot.clock = stage_clock;
}

int wheels_out(const tCar &car) {
    int out = 0;
    for (int i = 0; i < 4; i++) out += car.wheel[i].trkPos.seg && car.wheel[i].trkPos.seg->type2 != TR_MAIN;
    return out;
}

double distance_on_track(const tCar &car) {
    const tTrkLocPos &at = car.trkPos;
    return at.seg->lgfromstart + (at.seg->type == TR_STR ? at.toStart : at.toStart * at.seg->radius);
}

// One physics step and the lap clock: a lap is over when the car goes from the last segment to the first.
void physics() {
    Clock &clock = stage_clock;
    situation.deltaTime = DT;
    SimUpdate(&situation, DT, -1);
    clock.time = situation.currentTime;
    const bool off = wheels_out(*stage) >= 3, wall = stage->blocked;  // set by contact with the scenery alone
    clock.off += off ? DT : 0.0;
    clock.lap_off += off ? DT : 0.0;
    clock.wall += wall ? DT : 0.0;
    clock.lap_wall += wall ? DT : 0.0;
    tTrackSeg *now = stage_elt._trkPos.seg;
    if (clock.before != now) {
        if ((clock.before->raceInfo & TR_LAST) && (now->raceInfo & TR_START)) {
            if (clock.backwards > 0) {
                clock.backwards--;
            } else {
                clock.laps++;
                if (clock.laps > 1) {
                    clock.last_time = clock.time - clock.lap_began;
                    clock.last_off = clock.lap_off;
                    clock.last_wall = clock.lap_wall;
                }
                clock.lap_began = clock.time;
                clock.lap_off = clock.lap_wall = 0.0;
            }
        } else if ((clock.before->raceInfo & TR_START) && (now->raceInfo & TR_LAST)) {
            clock.backwards++;
        }
    }
    clock.before = now;
}

}  // namespace
