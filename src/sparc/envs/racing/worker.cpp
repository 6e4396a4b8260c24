// One track of TORCS in a process of its own: steps N independent cars for the Python side, or lets an AI drive laps.
//
// Built on the user's machine against TORCS 1.3.7's own libraries (see install.py) and run by simulator.py, which speaks
// the protocol at the end of this file: one letter and its arguments on standard input, answers on the inherited
// standard output, arrays in a file mapped by both. Nothing here decides anything about learning: observation, reward
// and episodes are made in Python from the rows that `report` writes.
//
// TORCS keeps its cars in globals that point into one another. One car, the stage, lives where TORCS wants it; every
// slot is a copy of it that is put there for its turn. So N cars cannot see each other, a slot's step gives the same
// bits whatever the other slots do, and a snapshot fits into any slot of any process with the same car and track.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include <car.h>
#include <raceman.h>
#include <robot.h>
#include <robottools.h>
#include <sim.h>
#include <tgf.h>
#include <track.h>

extern tTrack *TrackBuildv1(char *file);
extern void *GfParmReadBuf(char *text);

namespace {

const int PROTOCOL = 1;
const double DT = RCM_MAX_DT_SIMU;  // s, a physics step
const int ASSIST_EVERY = 10;        // physics steps: 50 Hz, as often as TORCS asks its own drivers
const int CONTROL_EVERY = 50;       // physics steps: 10 Hz
// The assists are of the kind that TORCS's own drivers have.
const double SLIP_ALLOWED = 2.0, SLIP_RANGE = 5.0;  // m/s: ABS and traction control begin here, and have lifted the pedal
const double SHIFT_AT = 0.9, SHIFT_MARGIN = 4.0;    // of the rev limit; m/s of hysteresis when changing down
// rad/s: at once. Asked ten times a second, a driver whose wheels turn slowly gets the steering that he wants on average
// by aiming as far beyond it as they are short of it now, and learns to swing from side to side with every command.
const double STEERING_SPEED = 1000.0;
// rad·m/s, rad: what a full turn of the wheel steers at a speed, the lock at most. More than TORCS's own drivers use.
const double STEER_BY_SPEED = 6.0, STEER_LEAST = 0.18;
const double ABS_FROM = 3.0;                        // m/s: slower than this, wheels may lock
const double LAUNCH_CLUTCH = 0.5;                   // in first gear, until the engine turns at half its limit

// s of processor time, twenty times what the slowest car needs for its race on the longest track, and all else at most.
const int RACE_LIMIT = 30, REQUEST_LIMIT = 5;

// What a row of state holds; simulator.py has the same list by name.
enum State {
    X, Y, Z, ROLL, PITCH, YAW, VX, VY, VZ, ROLL_RATE, PITCH_RATE, YAW_RATE, AX, AY, AZ,
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
std::vector<tTrackSeg *> segments;  // main and side ones, in a fixed order
std::unordered_map<tTrackSeg *, int> segment_number;

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

// ---- The stage ----

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

int wheels_out() {
    int out = 0;
    for (int i = 0; i < 4; i++) out += stage->wheel[i].trkPos.seg && stage->wheel[i].trkPos.seg->type2 != TR_MAIN;
    return out;
}

double distance_on_track() {
    const tTrkLocPos &at = stage_elt._trkPos;
    return at.seg->lgfromstart + (at.seg->type == TR_STR ? at.toStart : at.toStart * at.seg->radius);
}

// One physics step and the lap clock: a lap is over when the car goes from the last segment to the first.
void physics() {
    Clock &clock = stage_clock;
    situation.deltaTime = DT;
    SimUpdate(&situation, DT, -1);
    clock.time = situation.currentTime;
    const bool off = wheels_out() >= 3, wall = stage->blocked;  // set by contact with the scenery alone
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

// ---- Assists ----

double ratio_of(int gear) { return stage_elt._gearRatio[gear + stage_elt._gearOffset]; }

// The speed at which a gear reaches the revs at which it is changed, m/s.
double shift_speed(int gear) {
    return SHIFT_AT * stage_elt._enginerpmRedLine / ratio_of(gear) * stage_elt._wheelRadius(REAR_RGT);
}

int choose_gear(int gear, double speed) {
    const int top = stage->transmission.gearbox.gearMax;
    if (gear <= 0) return 1;
    if (gear < top && speed > shift_speed(gear)) return gear + 1;
    if (gear > 1 && speed + SHIFT_MARGIN < shift_speed(gear - 1)) return gear - 1;
    return gear;
}

double driven_wheel_speed() {
    const int first = stage->transmission.type == TRANS_RWD ? 2 : 0, last = stage->transmission.type == TRANS_FWD ? 2 : 4;
    double sum = 0.0;
    for (int i = first; i < last; i++) sum += stage_elt._wheelSpinVel(i) * stage_elt._wheelRadius(i);
    return sum / (last - first);
}

// How far a pedal is lifted at so much slip, m/s.
double relief(double slip) { return std::max(0.0, (slip - SLIP_ALLOWED) / SLIP_RANGE); }

void drive(double steer, double pedal) {
    const double speed = stage_elt._speed_x, flat = std::hypot(stage_elt._speed_x, stage_elt._speed_y);
    double throttle = std::max(pedal, 0.0), brake = std::max(-pedal, 0.0);
    if (flat > ABS_FROM) {
        double slowest = flat;
        for (int i = 0; i < 4; i++)
            slowest = std::min(slowest, double(stage_elt._wheelSpinVel(i) * stage_elt._wheelRadius(i)));
        brake -= std::min(brake, relief(flat - slowest));
    }
    throttle -= std::min(throttle, relief(driven_wheel_speed() - speed));
    // The whole command anew: TORCS itself writes into it while gears change.
    memset(&stage_elt.ctrl, 0, sizeof stage_elt.ctrl);
    stage->steer.maxSpeed = STEERING_SPEED;
    const double reach = std::max(STEER_LEAST, STEER_BY_SPEED / std::max(flat, 1.0));
    stage_elt._steerCmd = steer * std::min(1.0, reach / stage->steer.steerLock);
    stage_elt._accelCmd = throttle;
    stage_elt._brakeCmd = brake;
    stage_elt._gearCmd = choose_gear(stage_elt._gear, speed);
    const bool launch = stage_elt._gear == 1 && throttle > 0.0 && stage_elt._enginerpm < 0.5 * stage_elt._enginerpmRedLine;
    stage_elt._clutchCmd = launch ? LAUNCH_CLUTCH : 0.0;
}

// ---- Cars ----

// What the physics holds after loading, in SI units; simulator.py has the same list by name.
std::vector<double> figures() {
    const tCar &c = *stage;
    const tTransmission &t = c.transmission;
    double brake_front = 0.0, brake_rear = 0.0;  // N·m of the axle at full pressure
    for (int i = 0; i < 2; i++) {
        brake_front += c.wheel[i].brake.coeff * c.brkSyst.coeff * c.brkSyst.rep;
        brake_rear += c.wheel[2 + i].brake.coeff * c.brkSyst.coeff * (1.0 - c.brkSyst.rep);
    }
    return {
        c.mass, c.dimension.x, c.dimension.y, c.dimension.z, c.wheelbase, std::fabs(c.wheeltrack),
        (c.statGC.x - c.axle[REAR].xpos) / (c.axle[FRNT].xpos - c.axle[REAR].xpos), c.statGC.z,
        c.wheel[FRNT_RGT].radius, c.wheel[REAR_RGT].radius, c.wheel[FRNT_RGT].mu, c.wheel[REAR_RGT].mu,
        c.engine.curve.maxPw, c.engine.curve.maxTq, c.engine.revsLimiter, double(t.type), double(t.gearbox.gearMax),
        t.overallRatio[2], t.overallRatio[t.gearbox.gearMax + 1],
        c.aero.SCx2, c.aero.Clift[0], c.aero.Clift[1], -c.wing[0].Kx, c.wing[0].angle, -c.wing[1].Kx, c.wing[1].angle,
        brake_front, brake_rear, c.steer.steerLock, c.fuel,
        c.wheel[FRNT_RGT].mfB * c.wheel[FRNT_RGT].mfC, c.wheel[FRNT_RGT].lfMin, -c.wheel[FRNT_RGT].susp.spring.K,
        -c.wheel[REAR_RGT].susp.spring.K, c.Iinv.z,
    };
}

void configure(void *params) {
    memset(&stage_elt, 0, sizeof stage_elt);
    GF_TAILQ_INIT(&stage_elt._penaltyList);
    stage_elt.index = 0;
    stage_elt._driverType = RM_DRV_ROBOT;
    stage_elt._skillLevel = 2;  // "semi-pro", what TORCS gives its own drivers; it changes grip and damage
    stage_elt._carHandle = params;
    stage_elt._trkPos.seg = track->seg;
    strncpy(stage_elt._carName, "car", MAX_NAME_LEN - 1);
    strncpy(stage_elt._name, "driver", MAX_NAME_LEN - 1);
    RtInitCarPitSetup(params, &stage_elt.pitcmd.setup, false);
}

// Hand the stage to the physics; frees nothing.
void configure_physics() {
    take_off_stage();
    SimConfig(&stage_elt, &race);
    stage_solid = true;
}

std::vector<double> load(int number, std::string &xml) {
    void *params = GfParmReadBuf(&xml[0]);
    if (!params) fail("TORCS cannot read the car's description");
    Slot *&slot = slots.at(number);
    if (!slot) {
        slot = (Slot *)calloc(1, sizeof(Slot));
    } else {
        free(slot->fresh_car.engine.curve.data);
        take_off_stage();
        dtDeleteShape(slot->shape);
        GfParmReleaseHandle(slot->params);
    }
    configure(params);
    configure_physics();
    slot->car = slot->fresh_car = *stage;
    slot->elt = slot->fresh_elt = stage_elt;
    slot->params = params;
    slot->shape = stage->shape;
    return figures();
}

// The track at a distance from the line and an offset to the left of the centre line.
tTrkLocPos place(double distance, double offset) {
    tTrackSeg *seg = track->seg->next;
    distance = std::fmod(std::fmod(distance, track->length) + track->length, track->length);
    while (seg != track->seg && seg->next->lgfromstart <= distance && seg->next != track->seg->next) seg = seg->next;
    tTrkLocPos at;
    memset(&at, 0, sizeof at);
    at.seg = seg;
    at.type = TR_LPOS_MAIN;
    at.toStart = distance - seg->lgfromstart;
    if (seg->type != TR_STR) at.toStart /= seg->radius;
    const tdble width = RtTrackGetWidth(seg, at.toStart);
    at.toMiddle = offset;
    at.toRight = width / 2 + offset;
    at.toLeft = width / 2 - offset;
    return at;
}

// Put the car of a slot on the road, rolling: body level with it, springs at rest, wheels, gear and engine at its speed.
void roll(Slot &slot, const tTrkLocPos &at, double x, double y, double yaw, double speed) {
    slot.car = slot.fresh_car;
    slot.elt = slot.fresh_elt;
    put_on_stage(slot);
    tCar &c = *stage;
    c.trkPos = at;
    NORM_PI_PI(yaw);
    const double cosine = std::cos(yaw), sine = std::sin(yaw);
    double road[4], mean = 0.0, ride = 0.0;
    for (int i = 0; i < 4; i++) {
        tWheel &wheel = c.wheel[i];
        const double wx = wheel.staticPos.x, wy = wheel.staticPos.y;
        RtTrackGlobal2Local(at.seg, x + wx * cosine - wy * sine, y + wx * sine + wy * cosine, &wheel.trkPos, TR_LPOS_SEGMENT);
        road[i] = RtTrackHeightL(&wheel.trkPos);
        mean += road[i] / 4;
        ride += wheel.susp.spring.x0 / wheel.susp.spring.bellcrank / 4;
    }
    const double rise = (road[FRNT_RGT] + road[FRNT_LFT] - road[REAR_RGT] - road[REAR_LFT]) / 2 / c.wheelbase;
    const double bank = (road[FRNT_LFT] + road[REAR_LFT] - road[FRNT_RGT] - road[REAR_RGT]) / 2 / std::fabs(c.wheeltrack);
    tDynPt &body = c.DynGCg;
    memset(&body, 0, sizeof body);
    body.pos.x = x;
    body.pos.y = y;
    body.pos.z = mean + ride + c.statGC.z;
    body.pos.az = yaw;
    body.pos.ay = -std::asin(std::max(-0.9, std::min(0.9, rise)));
    body.pos.ax = std::asin(std::max(-0.9, std::min(0.9, bank)));
    c.DynGC = body;
    body.vel.x = speed * cosine;
    body.vel.y = speed * sine;
    c.DynGC.vel.x = speed;
    body.vel.z = c.DynGC.vel.z = speed * rise;
    c.Cosz = cosine;
    c.Sinz = sine;
    c.speed = std::fabs(speed);
    for (int i = 0; i < 4; i++) {
        tWheel &wheel = c.wheel[i];
        wheel.spinVel = wheel.prespinVel = wheel.in.spinVel = wheel.feedBack.spinVel = speed / wheel.radius;
        wheel.susp.x = wheel.susp.spring.x0;
        wheel.zRoad = road[i];
        wheel.rideHeight = ride;
        stage_elt._wheelSpinVel(i) = wheel.spinVel;
        stage_elt._reaction[i] = wheel.weight0;
    }
    int gear = 1;
    while (choose_gear(gear, speed) > gear) gear++;
    // The gearbox goes to it at once, without the pause of a real shift.
    tTransmission &t = c.transmission;
    const tdble pause = t.clutch.releaseTime;
    c.ctrl->gear = gear;
    t.clutch.state = CLUTCH_RELEASED;
    t.clutch.releaseTime = 0.0;
    SimGearboxUpdate(&c);
    t.clutch.releaseTime = pause;
    t.clutch.state = CLUTCH_RELEASED;
    t.clutch.transferValue = 1.0;
    const tdble revs = speed / c.wheel[REAR_RGT].radius * t.curOverallRatio;
    c.engine.rads = std::max(c.engine.tickover, std::min(revs, c.engine.revsLimiter));
    stage_elt._gear = gear;
    stage_elt._enginerpm = c.engine.rads;
    stage_elt._fuel = c.fuel;
    stage_elt._trkPos = c.trkPos;
    stage_elt.pub.DynGC = c.DynGC;
    stage_elt.pub.DynGCg = c.DynGCg;
    sgMakeCoordMat4(stage_elt.pub.posMat, x - c.statGC.x, y - c.statGC.y, body.pos.z - c.statGC.z,
                    RAD2DEG(body.pos.az), RAD2DEG(body.pos.ax), RAD2DEG(body.pos.ay));
    leave_stage(slot);
}

// Begin a race at a distance from the line, so far left of the centre line and turned so far from the track's heading.
void reset(Slot &slot, double distance, double offset, double heading, double speed) {
    tTrkLocPos at = place(distance, offset);
    tdble x, y;
    RtTrackLocal2Global(&at, &x, &y, TR_TORIGHT);
    memset(&slot.clock, 0, sizeof slot.clock);
    slot.clock.before = at.seg;
    roll(slot, at, x, y, RtTrackSideTgAngleL(&at) + heading, speed);
}

// Go on in another car: the same place and motion, the same lap, and nothing else of the old one.
std::vector<double> exchange(int number, std::string &xml) {
    const tCar old = slots.at(number)->car;
    const std::vector<double> loaded = load(number, xml);
    Slot &slot = *slots[number];
    roll(slot, old.trkPos, old.DynGCg.pos.x, old.DynGCg.pos.y, old.DynGCg.pos.az, old.DynGC.vel.x);
    tCar &c = slot.car;
    c.DynGCg.vel.x = old.DynGCg.vel.x, c.DynGCg.vel.y = old.DynGCg.vel.y, c.DynGCg.vel.az = old.DynGCg.vel.az;
    c.DynGC.vel.y = old.DynGC.vel.y, c.DynGC.vel.az = old.DynGC.vel.az;
    c.steer.steer = old.steer.steer / old.steer.steerLock * c.steer.steerLock;
    slot.elt.pub.DynGC = c.DynGC;
    slot.elt.pub.DynGCg = c.DynGCg;
    return loaded;
}

void step(Slot &slot, double steer, double pedal) {
    put_on_stage(slot);
    stage_clock.off = stage_clock.wall = 0.0;
    for (int i = 0; i < CONTROL_EVERY; i++) {
        if (i % ASSIST_EVERY == 0) drive(steer, pedal);
        situation.currentTime += DT;
        physics();
    }
    leave_stage(slot);
}

void report(const Slot &slot, double *row) {
    const tCar &c = slot.car;
    const tCarElt &e = slot.elt;
    const Clock &clock = slot.clock;
    row[X] = c.DynGCg.pos.x, row[Y] = c.DynGCg.pos.y, row[Z] = c.DynGCg.pos.z;
    row[ROLL] = c.DynGCg.pos.ax, row[PITCH] = c.DynGCg.pos.ay, row[YAW] = c.DynGCg.pos.az;
    row[VX] = c.DynGC.vel.x, row[VY] = c.DynGC.vel.y, row[VZ] = c.DynGC.vel.z;
    row[ROLL_RATE] = c.DynGC.vel.ax, row[PITCH_RATE] = c.DynGC.vel.ay, row[YAW_RATE] = c.DynGC.vel.az;
    row[AX] = c.DynGC.acc.x, row[AY] = c.DynGC.acc.y, row[AZ] = c.DynGC.acc.z;
    tTrkLocPos at = c.trkPos;
    row[DISTANCE] = at.seg->lgfromstart + (at.seg->type == TR_STR ? at.toStart : at.toStart * at.seg->radius);
    row[OFFSET] = at.toMiddle;
    row[HALF_WIDTH] = RtTrackGetWidth(at.seg, at.toStart) / 2;
    row[TRACK_HEADING] = RtTrackSideTgAngleL(&at);
    row[PROGRESS] = (clock.laps - clock.backwards) * double(track->length) + row[DISTANCE];
    row[GEAR] = c.transmission.gearbox.gear, row[REVS] = c.engine.rads / c.engine.revsLimiter;
    row[STEER] = c.steer.steer / c.steer.steerLock, row[THROTTLE] = e.ctrl.accelCmd, row[BRAKE] = e.ctrl.brakeCmd;
    int out = 0;
    for (int i = 0; i < 4; i++) {
        row[SLIP_RATIO + i] = c.wheel[i].sx, row[SLIP_ANGLE + i] = c.wheel[i].sa;
        row[LOAD + i] = e.priv.reaction[i], row[SPIN + i] = c.wheel[i].spinVel * c.wheel[i].radius;
        out += c.wheel[i].trkPos.seg && c.wheel[i].trkPos.seg->type2 != TR_MAIN;
    }
    row[WHEELS_OUT] = out, row[OFF_TIME] = clock.off, row[WALL_TIME] = clock.wall, row[DAMAGE] = c.dammage;
    row[TIME] = clock.time, row[LAPS] = clock.laps, row[LAP_TIME] = clock.last_time;
    row[LAP_OFF] = clock.last_off, row[LAP_WALL] = clock.last_wall, row[LAP_NOW] = clock.time - clock.lap_began;
}

// ---- Snapshots: a slot's bytes with nothing in them that only this process understands ----

struct Snapshot {
    tCar car;
    tCarElt elt;
    Clock clock;
};

template <class F> void each_segment(Snapshot &s, F visit) {
    visit(s.car.trkPos.seg);
    visit(s.elt._trkPos.seg);
    visit(s.clock.before);
    for (int i = 0; i < 4; i++) {
        visit(s.car.wheel[i].trkPos.seg);
        visit(s.elt._wheelSeg(i));
    }
}

// Take all other pointers from a configured car; from one of zeros, wipe them.
void set_pointers(Snapshot &s, const tCar &car, const tCarElt &elt) {
    s.car.ctrl = car.ctrl, s.car.params = car.params, s.car.carElt = car.carElt, s.car.shape = car.shape;
    s.car.engine.curve.data = car.engine.curve.data;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 2; j++) {
            s.car.transmission.differential[i].inAxis[j] = car.transmission.differential[i].inAxis[j];
            s.car.transmission.differential[i].outAxis[j] = car.transmission.differential[i].outAxis[j];
        }
    s.elt._pit = elt._pit, s.elt._penaltyList = elt._penaltyList;
    s.elt._paramsHandle = elt._paramsHandle, s.elt._carHandle = elt._carHandle;
    s.elt.robot = elt.robot, s.elt.next = elt.next;
}

void save(const Slot &slot, Snapshot &s) {
    static const Slot *zeros = (const Slot *)calloc(1, sizeof(Slot));
    memcpy(&s.car, &slot.car, sizeof s.car);
    memcpy(&s.elt, &slot.elt, sizeof s.elt);
    memcpy(&s.clock, &slot.clock, sizeof s.clock);
    set_pointers(s, zeros->car, zeros->elt);
    each_segment(s, [](tTrackSeg *&seg) { seg = (tTrackSeg *)(intptr_t)(seg ? segment_number.at(seg) + 1 : 0); });
    s.car.engine.exhaust_pressure = s.elt.priv.smoke = 0.0;  // pictures only, and drawn from a shared random number
}

void restore(Slot &slot, const Snapshot &from) {
    Snapshot s = from;
    set_pointers(s, slot.fresh_car, slot.fresh_elt);
    each_segment(s, [](tTrackSeg *&seg) { seg = seg ? segments.at((intptr_t)seg - 1) : nullptr; });
    slot.car = s.car;
    slot.elt = s.elt;
    slot.clock = s.clock;
}

// ---- TORCS's own drivers ----

const int TRACE_SIZE = 12;
struct Laps {
    std::vector<double> times, off, wall, damage;  // per lap; the first begins at a standstill behind the line
    std::vector<double> trace;                     // rows at 10 Hz of the last lap
};

// Race one driver as `torcs -r` does: the same start, the same order of calls, hence the same lap times.
Laps race_driver(std::string &xml, const char *driver, int index, int laps, bool own_setup, double limit) {
    Laps result;
    void *params = GfParmReadBuf(&xml[0]);
    if (!params) fail("TORCS cannot read the car's description");
    const std::string path = std::string(GetLibDir()) + "drivers/" + driver + "/" + driver + ".so";
    void *library = dlopen(path.c_str(), RTLD_NOW);
    if (!library) fail(std::string("cannot open the driver: ") + dlerror());
    auto entry = (int (*)(tModInfo *))dlsym(library, driver);
    if (!entry) fail(path + " is no driver");
    tModInfo info[MAX_MOD_ITF];
    memset(info, 0, sizeof info);
    entry(info);
    tRobotItf robot;
    memset(&robot, 0, sizeof robot);
    for (int i = 0; i < MAX_MOD_ITF; i++)
        if (info[i].name && info[i].index == index) info[i].fctInit(index, &robot);
    if (!robot.rbDrive) fail(std::string(driver) + " has no driver " + std::to_string(index));
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
    strncpy(stage_elt._modName, driver, MAX_NAME_LEN - 1);
    // The first place of the starting grid of a practice session.
    tTrackSeg *turn = track->seg->next;
    while (turn->type == TR_STR) turn = turn->next;
    void *own = track->params;
    const char *pole = GfParmGetStr(own, "Starting Grid", "pole position side", turn->type == TR_LFT ? "left" : "right");
    const int rows = std::max(1, (int)GfParmGetNum(own, "Starting Grid", "rows", nullptr, 1));
    const tdble behind = GfParmGetNum(own, "Starting Grid", "distance to start", nullptr, 100);
    const tdble above = GfParmGetNum(own, "Starting Grid", "initial height", nullptr, 0.2);
    const tdble a = strcmp(pole, "left") == 0 ? track->width : 0, b = strcmp(pole, "left") == 0 ? -track->width : track->width;
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
    configure_physics();
    if (track->pits.type == TR_PIT_ON_TRACK_SIDE) {
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
    robot.rbNewRace(robot.index, &stage_elt, &situation);
    SimUpdate(&situation, DT, -1);
    memset(&stage_clock, 0, sizeof stage_clock);
    stage_clock.before = stage_elt._trkPos.seg;
    memset(&stage_elt.ctrl, 0, sizeof stage_elt.ctrl);
    stage_elt.ctrl.brakeCmd = 1.0;
    for (int i = 0; i < (int)(1.0 / DT); i++) SimUpdate(&situation, DT, -1);
    situation.currentTime = -2.0;
    situation._raceState = RM_RACE_STARTING;
    double asked = -1.0;
    int done = 0;
    for (long n = 0; done < laps && situation.currentTime < limit; n++) {
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
        stage_elt._distFromStartLine = distance_on_track();
        stage_elt._distRaced = (stage_clock.laps - stage_clock.backwards - 1) * track->length + stage_elt._distFromStartLine;
        if (std::max(stage_clock.laps - 1, 0) > done) {
            done++;
            result.times.push_back(stage_clock.last_time);
            result.off.push_back(stage_clock.last_off);
            result.wall.push_back(stage_clock.last_wall);
            result.damage.push_back(stage->dammage);
            if (done < laps) result.trace.clear();
        }
        const double lap_now = situation.currentTime - stage_clock.lap_began;
        const long tick = std::lround(lap_now / DT);
        if (done < laps && stage_clock.laps > 0 && tick % CONTROL_EVERY == 0) {
            const tCar &c = *stage;
            const double row[TRACE_SIZE] = {lap_now, c.DynGCg.pos.x, c.DynGCg.pos.y, c.DynGCg.pos.az, c.DynGC.vel.x,
                                            distance_on_track(), stage_elt._trkPos.toMiddle,
                                            c.steer.steer / c.steer.steerLock, stage_elt.ctrl.accelCmd,
                                            stage_elt.ctrl.brakeCmd, double(c.transmission.gearbox.gear),
                                            double(wheels_out())};
            result.trace.insert(result.trace.end(), row, row + TRACE_SIZE);
        }
    }
    return result;
}

// ---- The track as numbers ----

const int TRACK_SIZE = 8;
std::vector<double> describe_track(int points) {
    std::vector<double> table;
    for (int i = 0; i < points; i++) {
        tTrkLocPos at = place(track->length * (double)i / points, 0.0);
        tdble x, y;
        RtTrackLocal2Global(&at, &x, &y, TR_TORIGHT);
        const double curvature = at.seg->type == TR_STR ? 0.0 : (at.seg->type == TR_LFT ? 1.0 : -1.0) / at.seg->radius;
        double heading = RtTrackSideTgAngleL(&at);
        NORM_PI_PI(heading);
        const double row[TRACK_SIZE] = {x, y, RtTrackHeightL(&at), heading, RtTrackGetWidth(at.seg, at.toStart) / 2, curvature,
                                        at.seg->surface->kFriction, at.seg->surface->kRollRes};
        table.insert(table.end(), row, row + TRACK_SIZE);
    }
    return table;
}

// ---- The protocol ----

int answers;  // the inherited standard output

// The other side is gone, perhaps killed: nobody else removes our folder.
[[noreturn]] void leave() {
    std::error_code ignored;
    if (strstr(GetLocalDir(), "/sparc-torcs-")) std::filesystem::remove_all(GetLocalDir(), ignored);
    _exit(0);
}

[[noreturn]] void give_up(int) {
    const char said[] = "\nerror: it was caught in an endless loop\n";
    if (write(STDERR_FILENO, said, sizeof said - 1) < 0) _exit(4);
    _exit(3);
}

// End ourselves after so many seconds of processor time, which neither a busy machine nor a pause uses up.
void allow(int seconds) {
    const itimerval timer = {{0, 0}, {seconds, 0}};
    setitimer(ITIMER_VIRTUAL, &timer, nullptr);
}

void get(void *into, size_t size) {
    char *at = (char *)into;
    while (size > 0) {
        const ssize_t got = read(STDIN_FILENO, at, size);
        if (got <= 0) leave();
        at += got, size -= got;
    }
}

template <class T> T get() {
    T value;
    get(&value, sizeof value);
    return value;
}

std::string get_text() {
    std::string text(get<int32_t>(), '\0');
    get(&text[0], text.size());
    return text;
}

void put(const void *from, size_t size) {
    const char *at = (const char *)from;
    while (size > 0) {
        const ssize_t done = write(answers, at, size);
        if (done <= 0) leave();
        at += done, size -= done;
    }
}

void put(const std::vector<double> &numbers) {
    const int32_t count = numbers.size();
    put(&count, sizeof count);
    put(numbers.data(), count * sizeof(double));
}

// What both sides map: a header, then actions, rows of state, and two generations of snapshots.
struct Shared {
    int64_t *turn;      // [0]: the slot whose turn it is, for the report of a crash; [1]: the generation last finished
    uint8_t *chosen;    // (N,) the slots to step
    double *actions;    // (N, 2)
    double *states;     // (N, STATE_SIZE)
    Snapshot *snapshots[2];
};
Shared shared;

void map_shared(const std::string &path) {
    const size_t count = slots.size();
    const size_t flags = (count + 7) / 8 * 8;
    const size_t size = 16 + flags + count * (2 + STATE_SIZE) * sizeof(double) + 2 * count * sizeof(Snapshot);
    const int file = open(path.c_str(), O_RDWR);
    char *at = file < 0 ? (char *)MAP_FAILED : (char *)mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) fail("cannot map " + path);
    close(file);
    shared.turn = (int64_t *)at, at += 16;
    shared.chosen = (uint8_t *)at, at += flags;
    shared.actions = (double *)at, at += count * 2 * sizeof(double);
    shared.states = (double *)at, at += count * STATE_SIZE * sizeof(double);
    for (int i = 0; i < 2; i++) shared.snapshots[i] = (Snapshot *)at, at += count * sizeof(Snapshot);
}

void publish(int number, int generation) {
    report(*slots[number], shared.states + number * STATE_SIZE);
    save(*slots[number], shared.snapshots[generation][number]);
}

// Answer that a request is done: it is no slot's turn any more.
void finish() {
    const char ok = 0;
    if (shared.turn) shared.turn[0] = -1;
    put(&ok, 1);
}

void serve() {
    while (true) {
        const char request = get<char>();
        allow(request == 'D' ? RACE_LIMIT : REQUEST_LIMIT);
        switch (request) {
            case 'M':  // map the shared file
                map_shared(get_text());
                finish();
                break;
            case 'L': {  // load a car into a slot
                const int32_t number = get<int32_t>();
                std::string xml = get_text();
                if (shared.turn) shared.turn[0] = number;
                const std::vector<double> loaded = load(number, xml);
                finish();
                put(loaded);
                break;
            }
            case 'X': {  // another car for a slot in mid-race
                const int32_t number = get<int32_t>();
                std::string xml = get_text();
                shared.turn[0] = number;
                const std::vector<double> loaded = exchange(number, xml);
                publish(number, shared.turn[1]);
                finish();
                put(loaded);
                break;
            }
            case 'R': {  // reset slots: number, distance, offset, heading, speed
                for (int32_t count = get<int32_t>(); count > 0; count--) {
                    const int32_t number = get<int32_t>();
                    double how[4];
                    get(how, sizeof how);
                    shared.turn[0] = number;
                    reset(*slots.at(number), how[0], how[1], how[2], how[3]);
                    publish(number, shared.turn[1]);
                }
                finish();
                break;
            }
            case 'S': {  // step the chosen slots; the other generation of snapshots stays as it was before
                const int next = 1 - shared.turn[1];
                for (size_t i = 0; i < slots.size(); i++) {
                    shared.turn[0] = i;
                    if (!slots[i]) continue;
                    if (shared.chosen[i]) {
                        step(*slots[i], shared.actions[2 * i], shared.actions[2 * i + 1]);
                        publish(i, next);
                    } else {
                        memcpy(&shared.snapshots[next][i], &shared.snapshots[1 - next][i], sizeof(Snapshot));
                    }
                }
                shared.turn[1] = next;
                finish();
                break;
            }
            case 'B':  // back to the snapshots: every slot as the shared file has it
                for (size_t i = 0; i < slots.size(); i++)
                    if (slots[i] && shared.snapshots[shared.turn[1]][i].car.trkPos.seg) {  // none before the first reset
                        restore(*slots[i], shared.snapshots[shared.turn[1]][i]);
                        report(*slots[i], shared.states + i * STATE_SIZE);
                    }
                finish();
                break;
            case 'T': {  // the track
                const std::vector<double> table = describe_track(get<int32_t>());
                finish();
                put(table);
                break;
            }
            case 'D': {  // let a driver of TORCS's race
                std::string xml = get_text(), driver = get_text();
                const int32_t index = get<int32_t>(), laps = get<int32_t>(), own_setup = get<int32_t>();
                const Laps raced = race_driver(xml, driver.c_str(), index, laps, own_setup, get<double>());
                finish();
                put(raced.times), put(raced.off), put(raced.wall), put(raced.damage), put(raced.trace);
                break;
            }
            default:
                fail("unknown request");
        }
    }
}

}  // namespace

// worker LIBRARIES DATA LOCAL TRACK.xml SLOTS FUEL
int main(int argc, char **argv) {
    if (argc != 7) fail("run by simulator.py, not by hand");
    answers = dup(STDOUT_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);  // TORCS prints
    signal(SIGPIPE, SIG_IGN);
    signal(SIGVTALRM, give_up);
    SetLibDir(argv[1]);
    SetDataDir(argv[2]);
    SetLocalDir(argv[3]);
    if (chdir(argv[2])) fail(std::string("no directory ") + argv[2]);
    GfInit();
    track = TrackBuildv1(argv[4]);
    if (!track) fail(std::string("TORCS cannot build the track ") + argv[4]);
    tTrackSeg *seg = track->seg->next;
    for (int i = 0; i < track->nseg; i++, seg = seg->next) {
        segments.push_back(seg);
        for (int side = 0; side < 2; side++)
            for (tTrackSeg *s = seg->side[side]; s; s = s->side[side]) segments.push_back(s);
    }
    for (size_t i = 0; i < segments.size(); i++) segment_number[segments[i]] = i;
    SimInit(1, track, atof(argv[6]), 1.0);
    stage = SimCarTable;
    situation._ncars = 1;
    situation.cars = stage_list;
    race.track = track;
    race.s = &situation;
    slots.assign(atoi(argv[5]), nullptr);
    const int32_t hello[4] = {PROTOCOL, STATE_SIZE, (int32_t)sizeof(Snapshot), (int32_t)figures().size()};
    put(hello, sizeof hello);
    const double about[2] = {track->length, track->width};
    put(about, sizeof about);
    serve();
}
