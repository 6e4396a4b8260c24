/* Acts with an exported SPARC policy. C99, no malloc, no file, no global state; needs libm for tanhf.
 *
 * The same file for every policy: sizes are in policy.h, numbers in policy_weights.h. */

#include "policy.h"

#include <math.h>
#include <string.h>

#include "policy_weights.h"

#define BLOCK 8 /* outputs at a time: a fixed number, so that compilers vectorise it at -O2 */

/* y[m] += x[n] w[n][m] */
static void add_product(const float *restrict x, int n, const float *restrict w, int m, float *restrict y)
{
    for (int i = 0; i < n; i++, w += m) {
        const float xi = x[i];
        int j = 0;
        if (xi == 0.0f) /* after a ReLU, about half of them */
            continue;
        for (; j + BLOCK <= m; j += BLOCK) {
            y[j] += xi * w[j];
            y[j + 1] += xi * w[j + 1];
            y[j + 2] += xi * w[j + 2];
            y[j + 3] += xi * w[j + 3];
            y[j + 4] += xi * w[j + 4];
            y[j + 5] += xi * w[j + 5];
            y[j + 6] += xi * w[j + 6];
            y[j + 7] += xi * w[j + 7];
        }
        for (; j < m; j++)
            y[j] += xi * w[j];
    }
}

static void relu(float *y, int m)
{
    for (int j = 0; j < m; j++)
        y[j] = y[j] > 0.0f ? y[j] : 0.0f;
}

static void dense(const float *x, int n, const float *w, const float *bias, int m, float *y)
{
    memcpy(y, bias, (size_t)m * sizeof *y);
    add_product(x, n, w, m, y);
}

static float clamp(float value, float low, float high)
{
    return value < low ? low : value > high ? high : value;
}

/* Standardises an observation, where the policy does. */
static void see(const float *obs, float *seen)
{
#if SPARC_NORMALISES
    for (int i = 0; i < SPARC_OBS; i++)
        seen[i] = clamp((obs[i] - norm_mean[i]) / norm_std[i], -SPARC_CLIP, SPARC_CLIP);
#else
    memcpy(seen, obs, SPARC_OBS * sizeof *obs);
#endif
}

#if SPARC_HISTORY
#define ROW (SPARC_OBS + SPARC_ACTIONS)
#define LAYERS ((int)(sizeof convolutions / sizeof *convolutions))

static void embed(const float *row, float *embedded)
{
    dense(row, ROW, embed_weight, embed_bias, SPARC_LATENT, embedded);
    relu(embedded, SPARC_LATENT);
}

/* Puts (obs, unit action) into the newest place of the ring. */
static void write_newest(sparc_policy *policy, const float *obs, const float *unit)
{
    float row[ROW];
    int there = 0;
    for (int i = 0; i < SPARC_OBS; i++)
        there = there || obs[i] != 0.0f;
    for (int i = 0; i < SPARC_ACTIONS; i++)
        there = there || unit[i] != 0.0f;
    memset(row, 0, sizeof row);
    if (there) { /* a row of zeros stands for no step at all */
        see(obs, row);
        memcpy(row + SPARC_OBS, unit, SPARC_ACTIONS * sizeof *unit);
    }
    embed(row, policy->embedded[(policy->oldest + SPARC_HISTORY - 1) % SPARC_HISTORY]);
}

/* One convolution over time with edge padding; step 0 is at place `oldest` of the ring x. */
static void convolve(const float *x, int steps, int channels, int oldest, int layer, float *y)
{
    const int kernel = convolutions[layer].kernel, stride = convolutions[layer].stride;
    const int filters = convolutions[layer].filters, windows = (steps + stride - 1) / stride;
    const int left = ((windows - 1) * stride + kernel - steps) / 2;
    for (int window = 0; window < windows; window++, y += filters) {
        memcpy(y, convolutions[layer].bias, (size_t)filters * sizeof *y);
        for (int k = 0; k < kernel; k++) {
            int step = window * stride + k - left;
            step = step < 0 ? 0 : step >= steps ? steps - 1 : step;
            step = (step + oldest) % steps;
            add_product(x + step * channels, channels, convolutions[layer].weight + k * channels * filters, filters, y);
        }
        relu(y, filters);
    }
}

/* The latent: what the policy reads out of its history. */
static void adapt(const sparc_policy *policy, float *latent)
{
    float scratch[2][SPARC_SCRATCH];
    const float *x = policy->embedded[0];
    int steps = SPARC_HISTORY, channels = SPARC_LATENT, oldest = policy->oldest;
    for (int layer = 0; layer < LAYERS; layer++) {
        convolve(x, steps, channels, oldest, layer, scratch[layer % 2]);
        x = scratch[layer % 2];
        steps = (steps + convolutions[layer].stride - 1) / convolutions[layer].stride;
        channels = convolutions[layer].filters;
        oldest = 0;
    }
    dense(x, steps * channels, out_weight, out_bias, SPARC_LATENT, latent);
    relu(latent, SPARC_LATENT);
}
#endif

void sparc_reset(sparc_policy *policy)
{
#if SPARC_HISTORY
    const float nothing[ROW] = {0.0f};
    policy->oldest = 0;
    policy->steps = 0;
    for (int step = 0; step < SPARC_HISTORY; step++)
        embed(nothing, policy->embedded[step]);
#else
    policy->steps = 0;
#endif
}

int sparc_executed(sparc_policy *policy, const float *action)
{
    for (int i = 0; i < SPARC_ACTIONS; i++)
        if (!isfinite(action[i]))
            return i + 1;
#if SPARC_HISTORY
    if (policy->steps) {
        float unit[SPARC_ACTIONS];
        for (int i = 0; i < SPARC_ACTIONS; i++)
            unit[i] = clamp((action[i] - action_middle[i]) / (action_half[i] > 0.0f ? action_half[i] : 1.0f), -1.0f, 1.0f);
        write_newest(policy, policy->last_obs, unit);
    }
#else
    (void)policy;
#endif
    return 0;
}

#if SPARC_CONTEXTS
int sparc_act(sparc_policy *policy, const float *obs, const float *context, float *action)
#else
int sparc_act(sparc_policy *policy, const float *obs, float *action)
#endif
{
    float seen[SPARC_OBS], first[SPARC_WIDTH], joined[SPARC_WIDTH + SPARC_JOINED], second[SPARC_WIDTH];
    float unit[SPARC_ACTIONS];
    for (int i = 0; i < SPARC_OBS; i++)
        if (!isfinite(obs[i]))
            return i + 1;
#if SPARC_CONTEXTS
    for (int i = 0; i < SPARC_CONTEXTS; i++)
        if (!isfinite(context[i]))
            return SPARC_OBS + i + 1;
#endif
    see(obs, seen);
    dense(seen, SPARC_OBS, observe0_weight, observe0_bias, SPARC_WIDTH, first);
    relu(first, SPARC_WIDTH);
    dense(first, SPARC_WIDTH, observe1_weight, observe1_bias, SPARC_WIDTH, joined);
    relu(joined, SPARC_WIDTH);
#if SPARC_HISTORY
    adapt(policy, joined + SPARC_WIDTH);
#elif SPARC_CONTEXTS
    float scaled[SPARC_CONTEXTS];
    for (int i = 0; i < SPARC_CONTEXTS; i++)
        scaled[i] = (context[i] - context_centre[i]) / context_half_range[i];
#if SPARC_ENCODES_CONTEXT
    float hidden[SPARC_LATENT];
    dense(scaled, SPARC_CONTEXTS, context0_weight, context0_bias, SPARC_LATENT, hidden);
    relu(hidden, SPARC_LATENT);
    dense(hidden, SPARC_LATENT, context1_weight, context1_bias, SPARC_LATENT, joined + SPARC_WIDTH);
    relu(joined + SPARC_WIDTH, SPARC_LATENT);
#else
    memcpy(joined + SPARC_WIDTH, scaled, sizeof scaled);
#endif
#endif
    dense(joined, SPARC_WIDTH + SPARC_JOINED, decide0_weight, decide0_bias, SPARC_WIDTH, first);
    relu(first, SPARC_WIDTH);
    dense(first, SPARC_WIDTH, decide1_weight, decide1_bias, SPARC_WIDTH, second);
    relu(second, SPARC_WIDTH);
    dense(second, SPARC_WIDTH, head_weight, head_bias, SPARC_ACTIONS, unit);
    for (int i = 0; i < SPARC_ACTIONS; i++) {
        unit[i] = tanhf(unit[i]);
        action[i] = clamp(action_middle[i] + action_half[i] * unit[i], action_low[i], action_high[i]);
    }
#if SPARC_HISTORY
    policy->oldest = (policy->oldest + 1) % SPARC_HISTORY;
    memcpy(policy->last_obs, obs, sizeof policy->last_obs);
    write_newest(policy, obs, unit);
#endif
    policy->steps = 1;
    return 0;
}
