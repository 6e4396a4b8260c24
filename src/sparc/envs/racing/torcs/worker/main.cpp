// One track of TORCS in a process of its own: steps N independent cars for the Python side, or lets an AI drive laps.
//
// Built on the user's machine against TORCS 1.3.7's own libraries (see install.py) and run by simulator.py, which speaks
// the protocol in this file: one letter and its arguments on standard input, answers on the inherited standard output,
// arrays in a file mapped by both. Nothing here decides anything about learning: observation, reward and episodes are
// made in Python from the rows that `report` writes.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <sim.h>
#include <tgf.h>
#include <track.h>

#include "cars.h"
#include "drivers.h"
#include "road.h"
#include "snapshots.h"
#include "stage.h"

extern tTrack *TrackBuildv1(char *file);

namespace {

// s of processor time, twenty times what the slowest car needs for its race on the longest track, and all else at most.
const int RACE_LIMIT = 30, REQUEST_LIMIT = 5;

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

void put(const std::string &text) {
    const int32_t size = text.size();
    put(&size, sizeof size);
    put(text.data(), text.size());
}

// A line for each: its name and its numbers.
void put(const Figures &figures) {
    std::string text;
    char number[32];
    for (const auto &[name, values] : figures) {
        text += name;
        for (const double value : values) {
            snprintf(number, sizeof number, " %.17g", value);
            text += number;
        }
        text += '\n';
    }
    put(text);
}

// What this side calls what it writes, a line for each kind; columns.py holds it against its own names.
std::string vocabulary() {
    std::string text;
    const std::pair<const char *, std::vector<std::string>> kinds[] = {
        {"state", state_names()}, {"trace", TRACE_NAMES}, {"track", TRACK_NAMES},
        {"off_course", {std::to_string(OFF_COURSE)}}};
    for (const auto &[kind, names] : kinds) {
        text += kind;
        for (const std::string &name : names) text += " " + name;
        text += '\n';
    }
    return text;
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
                const Figures loaded = load(number, xml);
                finish();
                put(loaded);
                break;
            }
            case 'X': {  // another car for a slot in mid-race
                const int32_t number = get<int32_t>();
                std::string xml = get_text();
                shared.turn[0] = number;
                const Figures loaded = exchange(number, xml);
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
    number_segments();
    SimInit(1, track, atof(argv[6]), 1.0);
    stage = SimCarTable;
    situation._ncars = 1;
    situation.cars = stage_list;
    race.track = track;
    race.s = &situation;
    slots.assign(atoi(argv[5]), nullptr);
    // hello: the names of all columns, the size of a snapshot, the length of the track
    put(vocabulary());
    const int32_t size = sizeof(Snapshot);
    put(&size, sizeof size);
    const double length = track->length;
    put(&length, sizeof length);
    serve();
}
