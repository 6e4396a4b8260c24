// What a slot leaves for Python: a row of state, and a snapshot with nothing in it that only this process understands.

#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <robottools.h>

#include "road.h"
#include "stage.h"

namespace {

void report(const Slot &slot, double *row) {
    const tCar &c = slot.car;
    const tCarElt &e = slot.elt;
    const Clock &clock = slot.clock;
    row[X] = c.DynGCg.pos.x, row[Y] = c.DynGCg.pos.y;
    row[ROLL] = c.DynGCg.pos.ax, row[PITCH] = c.DynGCg.pos.ay, row[YAW] = c.DynGCg.pos.az;
    row[VX] = c.DynGC.vel.x, row[VY] = c.DynGC.vel.y, row[VZ] = c.DynGC.vel.z;
    row[ROLL_RATE] = c.DynGC.vel.ax, row[PITCH_RATE] = c.DynGC.vel.ay, row[YAW_RATE] = c.DynGC.vel.az;
    row[AX] = c.DynGC.acc.x, row[AY] = c.DynGC.acc.y, row[AZ] = c.DynGC.acc.z;
    tTrkLocPos at = c.trkPos;
    row[DISTANCE] = distance_on_track(c);
    row[OFFSET] = at.toMiddle;
    row[HALF_WIDTH] = RtTrackGetWidth(at.seg, at.toStart) / 2;
    row[TRACK_HEADING] = RtTrackSideTgAngleL(&at);
    row[PROGRESS] = (clock.laps - clock.backwards) * double(track->length) + row[DISTANCE];
    row[GEAR] = c.transmission.gearbox.gear, row[REVS] = c.engine.rads / c.engine.revsLimiter;
    row[STEER] = c.steer.steer / c.steer.steerLock, row[THROTTLE] = e.ctrl.accelCmd, row[BRAKE] = e.ctrl.brakeCmd;
    for (int i = 0; i < 4; i++) {
        row[SLIP_RATIO + i] = c.wheel[i].sx, row[SLIP_ANGLE + i] = c.wheel[i].sa;
        row[LOAD + i] = e.priv.reaction[i], row[WHEEL_SPEED + i] = c.wheel[i].spinVel * c.wheel[i].radius;
    }
    row[WHEELS_OUT] = wheels_out(c), row[OFF_TIME] = clock.off, row[WALL_TIME] = clock.wall, row[DAMAGE] = c.dammage;
    row[TIME] = clock.time, row[LAPS] = clock.laps, row[LAP_TIME] = clock.last_time;
    row[LAP_OFF] = clock.last_off, row[LAP_WALL] = clock.last_wall, row[LAP_NOW] = clock.time - clock.lap_began;
}

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

}  // namespace
