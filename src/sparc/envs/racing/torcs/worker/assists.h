// What drives between two commands: gears, clutch, ABS, traction control and the steering's reach.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "stage.h"

namespace {

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

}  // namespace
