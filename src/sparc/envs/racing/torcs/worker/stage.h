// The stage: the one car that TORCS knows, the slots that take turns on it, and a step of its physics.
//
// TORCS keeps its cars in globals that point into one another. One car, the stage, lives where TORCS wants it; every
// slot is a copy of it that is put there for its turn. So N cars cannot see each other, a slot's step gives the same
// bits whatever the other slots do, and a snapshot fits into any slot of any process with the same car and track.

#pragma once

#include <cctype>
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

const int OFF_COURSE = 3;  // wheels out

// What a row of state holds: ONE column, or FOUR, one for each wheel. columns.py has the same list, and both sides
// compare them when a worker starts.
#define STATE_COLUMNS(ONE, FOUR) \
    ONE(X) ONE(Y) ONE(ROLL) ONE(PITCH) ONE(YAW) ONE(VX) ONE(VY) ONE(VZ) \
    ONE(ROLL_RATE) ONE(PITCH_RATE) ONE(YAW_RATE) ONE(AX) ONE(AY) ONE(AZ) \
    ONE(DISTANCE) ONE(OFFSET) ONE(HALF_WIDTH) ONE(TRACK_HEADING) ONE(PROGRESS) \
    ONE(GEAR) ONE(REVS) ONE(STEER) ONE(THROTTLE) ONE(BRAKE) \
    FOUR(SLIP_RATIO) FOUR(SLIP_ANGLE) FOUR(LOAD) FOUR(WHEEL_SPEED) \
    ONE(WHEELS_OUT) ONE(OFF_TIME) ONE(WALL_TIME) ONE(DAMAGE) ONE(TIME) \
    ONE(LAPS) ONE(LAP_TIME) ONE(LAP_OFF) ONE(LAP_WALL) ONE(LAP_NOW)

#define ONE_INDEX(name) name,
#define FOUR_INDICES(name) name, name##_LAST = name + 3,
enum State { STATE_COLUMNS(ONE_INDEX, FOUR_INDICES) STATE_SIZE };

// In the order of TORCS's wheels.
const char *const WHEELS[4] = {"front_right", "front_left", "rear_right", "rear_left"};

std::vector<std::string> state_names() {
    std::vector<std::string> names;
    const auto one = [&](std::string name) {
        for (char &letter : name) letter = tolower(letter);
        names.push_back(name);
    };
    const auto four = [&](const std::string &name) {
        for (const char *wheel : WHEELS) one(name + "_" + wheel);
    };
#define ONE_NAME(name) one(#name);
#define FOUR_NAMES(name) four(#name);
    STATE_COLUMNS(ONE_NAME, FOUR_NAMES)
    return names;
}

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
    const bool off = wheels_out(*stage) >= OFF_COURSE, wall = stage->blocked;  // set by contact with the scenery alone
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
