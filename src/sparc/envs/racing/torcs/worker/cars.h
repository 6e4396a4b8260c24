// Cars: loaded from their description, read back, put on the road, exchanged and stepped.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <robottools.h>
#include <tgf.h>

#include "assists.h"
#include "road.h"
#include "stage.h"

extern void *GfParmReadBuf(char *text);

namespace {

const int ASSIST_EVERY = 10;   // physics steps: 50 Hz, as often as TORCS asks its own drivers
const int CONTROL_EVERY = 50;  // physics steps: 10 Hz

// What the physics holds of a car, by name; readback.py expects the same. Of wheels: front right, front left, rear
// right, rear left; of axles: front, rear.
using Figures = std::vector<std::pair<const char *, std::vector<double>>>;

template <class F> std::vector<double> each(int count, F figure) {
    std::vector<double> all;
    for (int i = 0; i < count; i++) all.push_back(figure(i));
    return all;
}

// Read everything back that a description tells, in SI units.
Figures figures() {
    const tCar &c = *stage;
    const tEngine &e = c.engine;
    const tTransmission &t = c.transmission;
    const auto wheels = [&c](auto figure) { return each(4, [&](int i) -> double { return figure(c.wheel[i]); }); };
    const auto springs = [&c](auto figure) { return each(4, [&](int i) -> double { return figure(c.wheel[i].susp); }); };
    const auto differentials = [&t](auto figure) {  // front, rear, central
        return each(3, [&](int i) -> double { return figure(t.differential[i]); });
    };
    const auto brake = [&c](int i) {  // N·m at full pressure
        return c.wheel[i].brake.coeff * c.brkSyst.coeff * (i < 2 ? c.brkSyst.rep : 1.0 - c.brkSyst.rep);
    };
    const auto ratio = [&t](int i) -> double { return t.overallRatio[i < 1 ? 0 : i + 1]; };  // reverse, first, …
    const auto revs = [&e](int i) -> double { return e.curve.data[i].rads; };  // where piece i of the curve ends
    const auto torque = [&e](int i) -> double {  // at the curve's beginning, and where each piece ends
        return i < 1 ? e.curve.data[0].b : e.curve.data[i - 1].a * e.curve.data[i - 1].rads + e.curve.data[i - 1].b;
    };
    return {
        {"mass", {c.mass}},
        {"size", {c.dimension.x, c.dimension.y, c.dimension.z}},
        {"front_weight", {(c.statGC.x - c.axle[REAR].xpos) / (c.axle[FRNT].xpos - c.axle[REAR].xpos)}},
        {"centre_height", {c.statGC.z}},
        {"inverse_inertia", {c.Iinv.x, c.Iinv.y, c.Iinv.z}},
        {"fuel", {c.fuel}},
        {"tank", {c.tank}},
        {"drag", {c.aero.SCx2}},
        {"body_lift", {c.aero.Clift[0], c.aero.Clift[1]}},
        {"wing", each(2, [&](int i) { return -c.wing[i].Kx; })},
        {"wing_angle", each(2, [&](int i) { return c.wing[i].angle; })},
        {"wing_x", each(2, [&](int i) { return c.wing[i].staticPos.x + c.statGC.x; })},
        {"wing_z", each(2, [&](int i) { return c.wing[i].staticPos.z; })},
        {"axle_x", each(2, [&](int i) { return c.axle[i].xpos; })},
        {"axle_inertia", each(2, [&](int i) { return c.axle[i].I; })},
        {"anti_roll_bar", each(2, [&](int i) { return c.axle[i].arbSuspSpringK; })},
        {"roll_centre", wheels([](const tWheel &w) { return w.rollCenter; })},
        {"wheel_x", wheels([&](const tWheel &w) { return w.staticPos.x + c.statGC.x; })},
        {"wheel_y", wheels([&](const tWheel &w) { return w.staticPos.y + c.statGC.y; })},
        {"radius", wheels([](const tWheel &w) { return w.radius; })},
        {"wheel_mass", wheels([](const tWheel &w) { return w.mass; })},
        {"wheel_inertia", wheels([](const tWheel &w) { return w.I; })},
        {"grip", wheels([](const tWheel &w) { return w.mu; })},
        {"stiffness", wheels([](const tWheel &w) { return w.mfB * w.mfC; })},
        {"sliding", wheels([](const tWheel &w) { return std::sin((2.0 - w.mfC) * M_PI / 2.0); })},
        {"slip_shape", wheels([](const tWheel &w) { return w.mfE; })},
        {"light_load", wheels([](const tWheel &w) { return w.lfMax; })},
        {"heavy_load", wheels([](const tWheel &w) { return w.lfMin; })},
        {"operating_load", wheels([](const tWheel &w) { return w.opLoad; })},
        {"ride_height", springs([](const tSuspension &s) { return s.spring.x0 / s.spring.bellcrank; })},
        {"spring", springs([](const tSuspension &s) { return -s.spring.K; })},
        {"spring_travel", springs([](const tSuspension &s) { return s.spring.xMax; })},
        {"slow_bump", springs([](const tSuspension &s) { return s.damper.bump.C1; })},
        {"fast_bump", springs([](const tSuspension &s) { return s.damper.bump.C2; })},
        {"slow_rebound", springs([](const tSuspension &s) { return s.damper.rebound.C1; })},
        {"fast_rebound", springs([](const tSuspension &s) { return s.damper.rebound.C2; })},
        {"brake", each(4, brake)},
        {"brake_inertia", wheels([](const tWheel &w) { return w.brake.I; })},
        {"steer_lock", {c.steer.steerLock}},
        {"steer_speed", {c.steer.maxSpeed}},
        {"power", {e.curve.maxPw}},
        {"torque", {e.curve.maxTq}},
        {"rev_limit", {e.revsLimiter}},
        {"most_revs", {e.revsMax}},
        {"tickover", {e.tickover}},
        {"engine_inertia", {e.I}},
        {"engine_brake", {e.brakeCoeff}},
        {"fuel_use", {e.fuelcons}},
        {"curve_revs", each(e.curve.nbPts - 1, revs)},
        {"curve_torque", each(e.curve.nbPts, torque)},
        {"drive", {double(t.type)}},
        {"ratios", each(t.gearbox.gearMax + 1, ratio)},
        {"shift_time", {t.clutch.releaseTime}},
        {"differential", differentials([](const tDifferential &d) { return d.type; })},
        {"differential_ratio", differentials([](const tDifferential &d) { return d.ratio; })},
        {"differential_inertia", differentials([](const tDifferential &d) { return d.I; })},
        {"slip_bias", differentials([](const tDifferential &d) { return d.dSlipMax; })},
        {"locking_torque", differentials([](const tDifferential &d) { return d.lockInputTq; })},
        {"locking_brake_torque", differentials([](const tDifferential &d) { return d.lockBrakeInputTq; })},
    };
}

void *read_description(std::string &xml) {
    void *params = GfParmReadBuf(&xml[0]);
    if (!params) fail("TORCS cannot read the car's description");
    return params;
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

Figures load(int number, std::string &xml) {
    void *params = read_description(xml);
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
Figures exchange(int number, std::string &xml) {
    const tCar old = slots.at(number)->car;
    const Figures loaded = load(number, xml);
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

}  // namespace
