// The track: its segments by number, places on it, and its centre line as a table.

#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include <robottools.h>

#include "stage.h"

namespace {

std::vector<tTrackSeg *> segments;  // main and side ones, in a fixed order
std::unordered_map<tTrackSeg *, int> segment_number;

void number_segments() {
    tTrackSeg *seg = track->seg->next;
    for (int i = 0; i < track->nseg; i++, seg = seg->next) {
        segments.push_back(seg);
        for (int side = 0; side < 2; side++)
            for (tTrackSeg *s = seg->side[side]; s; s = s->side[side]) segments.push_back(s);
    }
    for (size_t i = 0; i < segments.size(); i++) segment_number[segments[i]] = i;
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

// A row for each point of the centre line; columns.py has the same columns, compared when a worker starts.
const std::vector<std::string> TRACK_NAMES = {"x", "y", "heading", "half_width", "curvature", "friction"};
std::vector<double> describe_track(int points) {
    std::vector<double> table;
    for (int i = 0; i < points; i++) {
        tTrkLocPos at = place(track->length * (double)i / points, 0.0);
        tdble x, y;
        RtTrackLocal2Global(&at, &x, &y, TR_TORIGHT);
        const double curvature = at.seg->type == TR_STR ? 0.0 : (at.seg->type == TR_LFT ? 1.0 : -1.0) / at.seg->radius;
        double heading = RtTrackSideTgAngleL(&at);
        NORM_PI_PI(heading);
        table.insert(table.end(), {x, y, heading, RtTrackGetWidth(at.seg, at.toStart) / 2, curvature,
                                   at.seg->surface->kFriction});
    }
    return table;
}

}  // namespace
