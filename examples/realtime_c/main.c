/* A real-time loop around an exported policy: one observation in, one action out, at the contract's period.
 *
 * Here the observations come from a recorded trace (trace.py writes it); on a robot, read_sensors and drive are yours.
 * Nothing is allocated and nothing blocks inside the loop but the wait for the next period.
 *
 *     cc -std=c99 -O2 -IEXPORT main.c EXPORT/policy.c -lm -o loop && ./loop trace.csv [SPEED] */

#define _POSIX_C_SOURCE 200112L

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "policy.h"

#ifndef SPARC_PERIOD_S
#error "contract.json has no period: register the environment with period=, or define SPARC_PERIOD_S"
#endif
#if SPARC_CONTEXTS
#error "this loop is for policies that read no context"
#endif

#define TOLERANCE 1e-5

/* A row of the trace: whether an episode begins, what was seen, and what the trained policy did. */
struct row {
    int start;
    float obs[SPARC_OBS], action[SPARC_ACTIONS];
};

static int read_numbers(FILE *file, float *values, int count)
{
    for (int i = 0; i < count; i++)
        if (fscanf(file, ",%f", &values[i]) != 1)
            return 0;
    return 1;
}

static int read_sensors(FILE *trace, struct row *row)
{
    return fscanf(trace, "%d", &row->start) == 1 && read_numbers(trace, row->obs, SPARC_OBS)
           && read_numbers(trace, row->action, SPARC_ACTIONS);
}

/* Sends the action to the motors; here it only looks how far it is from the recorded one. */
static double drive(const float *action, const float *recorded)
{
    double largest = 0.0;
    for (int i = 0; i < SPARC_ACTIONS; i++)
        largest = fmax(largest, fabs((double)action[i] - (double)recorded[i]));
    return largest;
}

static double seconds_since(struct timespec then)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - then.tv_sec) + 1e-9 * (double)(now.tv_nsec - then.tv_nsec);
}

int main(int argc, char **argv)
{
    static sparc_policy policy;
    const double period = SPARC_PERIOD_S / (argc > 2 ? atof(argv[2]) : 1.0);
    double difference = 0.0, slowest = 0.0, latest = 0.0;
    long steps = 0;
    struct timespec next;
    struct row row;
    FILE *trace = argc > 1 ? fopen(argv[1], "r") : NULL;
    if (trace == NULL || !(period > 0.0)) {
        fprintf(stderr, "usage: loop trace.csv [SPEED]\n");
        return 2;
    }
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (; read_sensors(trace, &row); steps++) {
        float action[SPARC_ACTIONS];
        struct timespec began;
        clock_gettime(CLOCK_MONOTONIC, &began);
        if (row.start)
            sparc_reset(&policy);
        int wrong = sparc_act(&policy, row.obs, action);
        if (wrong) { /* a broken sensor: the policy has not changed, stop the robot here */
            fprintf(stderr, "step %ld: element %d of the observation is not finite\n", steps, wrong - 1);
            fclose(trace);
            return 1;
        }
        slowest = fmax(slowest, seconds_since(began));
        difference = fmax(difference, drive(action, row.action));
        next.tv_nsec += (long)(1e9 * fmod(period, 1.0));
        next.tv_sec += (time_t)period + next.tv_nsec / 1000000000L;
        next.tv_nsec %= 1000000000L;
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL) != 0)
            ;
        latest = fmax(latest, seconds_since(next));
    }
    fclose(trace);
    printf("%ld steps, largest difference %.1e, slowest action %.0f us, latest wake-up %.0f us\n", steps, difference,
           1e6 * slowest, 1e6 * latest);
    return steps > 0 && difference <= TOLERANCE ? 0 : 1;
}
