/* Compute ZW and sum S log Shat from padded row segments of S, as a custom call of XLA on the CPU: see native.py.

   Each nonzero reads its row W[column] twice, for Shat and for ZW. The rows of up to LANES nonzeros are all read for
   Shat first. They are still in the first-level cache when they are read for ZW. */

#ifndef REAL

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include "xla/ffi/api/c_api.h"

/* The bytes of one vector register. AVX-512 is not used: rows of W seldom begin at a multiple of its 64 bytes, and it
   was slower than AVX in nearly every comparison, with 200 topics as with 50. */
#ifdef __AVX__
enum { VECTOR_BYTES = 32 };
#else
enum { VECTOR_BYTES = 16 };
#endif

enum {
  LANES = 16,      /* nonzeros at a time: 13 kB of W with 200 topics, in a first-level cache of 32 kB */
  GROUP = 8,       /* sums at a time in registers: a fused multiply-add takes 4 cycles, and two start per cycle */
  BLOCK = 4,       /* vectors of ZW at a time in registers */
  LINE_BYTES = 64, /* bytes of a cache line */
  MAX_THREADS = 256,
  SLICE_BYTES = 1 << 20, /* bytes of ZW that one thread clears at a time */
};

#define INLINE static inline __attribute__((always_inline))

/* ---- Threads ---- */

typedef struct {
  void (*task)(void *job, int64_t index);
  void *job;
  int64_t num_tasks;
  atomic_llong next;
} Work;

/* Take tasks until none is left. Subnormal numbers count as zero meanwhile, in every thread, as they do in XLA. */
static void *work(void *argument) {
  Work *shared = argument;
#ifdef __SSE__
  enum { FLUSH_TO_ZERO = 0x8000, DENORMALS_ARE_ZERO = 0x0040 };
  unsigned int before = _mm_getcsr();
  _mm_setcsr(before | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO);
#endif
  for (int64_t index; (index = atomic_fetch_add(&shared->next, 1)) < shared->num_tasks;)
    shared->task(shared->job, index);
#ifdef __SSE__
  _mm_setcsr(before);
#endif
  return NULL;
}

/* Run tasks 0, ..., num_tasks - 1 on at most num_threads threads, the caller's included. */
static void run(void (*task)(void *, int64_t), void *job, int64_t num_tasks, int64_t num_threads) {
  Work shared = {.task = task, .job = job, .num_tasks = num_tasks};
  pthread_t threads[MAX_THREADS];
  int num_started = 0;
  while (num_started < MAX_THREADS && num_started + 1 < num_threads && num_started + 1 < num_tasks) {
    if (pthread_create(&threads[num_started], NULL, work, &shared) != 0) break;
    num_started++;
  }
  work(&shared);
  for (int i = 0; i < num_started; i++) pthread_join(threads[i], NULL);
}

/* ---- XLA's interface ---- */

typedef struct {
  const void *W, *W_over_s, *values;
  const int32_t *parts, *rows, *columns;
  bool plain; /* Z is S */
  void *ZW;
  int64_t num_words, num_topics, num_parts, width;
  size_t ZW_bytes;
  double *log_likelihoods; /* one for each part, summed in the order of the parts */
  atomic_bool outside; /* whether a row or column is none of W */
} Pass;

static void clear_slice(void *job, int64_t index) {
  const Pass *pass = job;
  size_t first = (size_t)index * SLICE_BYTES, left = pass->ZW_bytes - first;
  memset((char *)pass->ZW + first, 0, left < SLICE_BYTES ? left : SLICE_BYTES);
}

/* Return whether all indices are rows of a matrix of so many. A negative index is a large one without its sign. */
INLINE bool are_rows(const int32_t *indices, int64_t count, int64_t num_rows) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; i++) largest = (uint32_t)indices[i] > largest ? (uint32_t)indices[i] : largest;
  return largest < num_rows;
}

static XLA_FFI_Error *error(const XLA_FFI_Api *api, XLA_FFI_Error_Code code, const char *message) {
  XLA_FFI_Error_Create_Args args = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL, message, code};
  return api->XLA_FFI_Error_Create(&args);
}

/* Tell XLA the version of the interface, which it asks for before the first call. All other fields are zero: no
   traits, and in newer versions no state. */
static bool answer_metadata(const XLA_FFI_CallFrame *frame) {
  for (XLA_FFI_Extension_Base *extension = frame->extension_start; extension; extension = extension->next) {
    if (extension->type != XLA_FFI_Extension_Metadata) continue;
    XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)extension)->metadata;
    *metadata = (XLA_FFI_Metadata){
        .struct_size = metadata->struct_size,
        .api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, NULL, XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR},
    };
    return true;
  }
  return false;
}

static bool is(const XLA_FFI_Buffer *buffer, XLA_FFI_DataType dtype, int64_t rank, int64_t first, int64_t second) {
  return buffer->dtype == dtype && buffer->rank == rank && (rank < 1 || buffer->dims[0] == first) &&
         (rank < 2 || buffer->dims[1] == second);
}

/* Return the attribute num_threads, or 0 if it is missing. */
static int64_t num_threads_of(const XLA_FFI_Attrs *attrs) {
  static const char name[] = "num_threads";
  for (int64_t i = 0; i < attrs->size; i++) {
    const XLA_FFI_ByteSpan *found = attrs->names[i];
    if (found->len != sizeof name - 1 || memcmp(found->ptr, name, found->len) != 0) continue;
    if (attrs->types[i] != XLA_FFI_AttrType_SCALAR) return 0;
    const XLA_FFI_Scalar *scalar = attrs->attrs[i];
    if (scalar->dtype == XLA_FFI_DataType_S64) return *(const int64_t *)scalar->value;
    if (scalar->dtype == XLA_FFI_DataType_S32) return *(const int32_t *)scalar->value;
  }
  return 0;
}

/* Fill in the pass, except for log_likelihoods. Return what is wrong, or NULL. Without W_over_s, Z is S itself. */
static const char *parse(const XLA_FFI_CallFrame *frame, XLA_FFI_DataType dtype, Pass *pass) {
  const bool plain = frame->args.size == 5;
  if (!plain && frame->args.size != 6) return "expected W, W_over_s or not, parts, rows, columns, values";
  if (frame->rets.size != 2) return "expected results ZW, log_likelihood";
  XLA_FFI_Buffer **args = (XLA_FFI_Buffer **)frame->args.args, **rets = (XLA_FFI_Buffer **)frame->rets.rets;
  XLA_FFI_Buffer **pieces = args + (plain ? 1 : 2);
  const XLA_FFI_Buffer *W = args[0], *W_over_s = plain ? W : args[1], *parts = pieces[0], *rows = pieces[1],
                       *columns = pieces[2], *values = pieces[3], *ZW = rets[0], *log_likelihood = rets[1];
  if (W->rank != 2 || W->dtype != dtype) return "W must be (words, topics) of the dtype of this function";
  int64_t N = W->dims[0], r = W->dims[1];
  if (!is(W_over_s, dtype, 2, N, r)) return "W_over_s must have W's shape and dtype";
  if (parts->rank != 1 || parts->dims[0] < 1 || parts->dtype != XLA_FFI_DataType_S32)
    return "parts must be int32 (number of parts + 1,)";
  if (rows->rank != 1 || rows->dtype != XLA_FFI_DataType_S32) return "rows must be int32 (segments,)";
  int64_t n = rows->dims[0];
  if (columns->rank != 2 || !is(columns, XLA_FFI_DataType_S32, 2, n, columns->dims[1]))
    return "columns must be int32 (segments, width)";
  int64_t width = columns->dims[1];
  if (!is(values, dtype, 2, n, width)) return "values must have columns' shape and W's dtype";
  if (!is(ZW, dtype, 2, N, r)) return "ZW must have W's shape and dtype";
  if (!is(log_likelihood, dtype, 0, 0, 0)) return "log_likelihood must be a scalar of W's dtype";
  const int32_t *bounds = parts->data;
  int64_t num_parts = parts->dims[0] - 1;
  if (bounds[0] < 0 || bounds[num_parts] > n) return "parts must lie between 0 and the number of segments";
  for (int64_t p = 0; p < num_parts; p++)
    if (bounds[p] > bounds[p + 1]) return "parts must not fall";
  *pass = (Pass){
      .W = W->data, .W_over_s = W_over_s->data, .plain = plain, .values = values->data, .ZW = ZW->data,
      .parts = bounds, .rows = rows->data, .columns = columns->data,
      .num_words = N, .num_topics = r, .num_parts = num_parts, .width = width,
  };
  return NULL;
}

static XLA_FFI_Error *handle(XLA_FFI_CallFrame *frame, XLA_FFI_DataType dtype, void (*task)(void *, int64_t)) {
  if (answer_metadata(frame)) return NULL;
  Pass pass;
  const char *wrong = parse(frame, dtype, &pass);
  if (wrong) return error(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT, wrong);
  int64_t num_threads = num_threads_of(&frame->attrs);
  if (num_threads < 1)
    return error(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT, "num_threads must be an integer of at least 1");
  pass.log_likelihoods = calloc((size_t)pass.num_parts + 1, sizeof(double));
  if (!pass.log_likelihoods)
    return error(frame->api, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "no memory for the parts' log-likelihoods");

  size_t item_bytes = dtype == XLA_FFI_DataType_F32 ? sizeof(float) : sizeof(double);
  pass.ZW_bytes = (size_t)(pass.num_words * pass.num_topics) * item_bytes;
  run(clear_slice, &pass, (int64_t)((pass.ZW_bytes + SLICE_BYTES - 1) / SLICE_BYTES), num_threads);
  run(task, &pass, pass.num_parts, num_threads);

  double total = 0;
  for (int64_t p = 0; p < pass.num_parts; p++) total += pass.log_likelihoods[p];
  free(pass.log_likelihoods);
  if (atomic_load(&pass.outside))
    return error(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT, "rows and columns must be those of W");
  void *log_likelihood = ((XLA_FFI_Buffer *)frame->rets.rets[1])->data;
  if (dtype == XLA_FFI_DataType_F32)
    *(float *)log_likelihood = (float)total;
  else
    *(double *)log_likelihood = total;
  return NULL;
}

/* ---- The logarithm ---- */

/* Compute log x with x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2). The polynomial is that of the Cephes library, and
   so are the two parts of ln 2; the product of the first part and e is exact. The error is at most one ulp. The
   function has no branches or calls, so the compiler can vectorize it. Subnormal numbers count as zero. */
INLINE float log_float(float x) {
  uint32_t bits, mantissa;
  memcpy(&bits, &x, sizeof bits);
  int32_t exponent = (int32_t)(bits - 0x3f3504f3u) >> 23; /* sqrt(1/2) */
  mantissa = bits - ((uint32_t)exponent << 23);
  float f, e = (float)exponent;
  memcpy(&f, &mantissa, sizeof f);
  f -= 1;
  float y = 7.0376836292e-2f;
  y = y * f - 1.1514610310e-1f;
  y = y * f + 1.1676998740e-1f;
  y = y * f - 1.2420140846e-1f;
  y = y * f + 1.4249322787e-1f;
  y = y * f - 1.6668057665e-1f;
  y = y * f + 2.0000714765e-1f;
  y = y * f - 2.4999993993e-1f;
  y = y * f + 3.3333331174e-1f;
  float square = f * f;
  y = y * f * square - 2.12194440e-4f * e - 0.5f * square;
  y = f + y + 0.693359375f * e;
  y = x <= FLT_MAX ? y : x; /* infinity and NaN */
  return x >= FLT_MIN ? y : x >= 0 ? -INFINITY : NAN;
}

/* ---- The two instances ---- */

#define REAL float
#define LOG log_float
#define NAME(name) name##_f32
#include "native.c"
#undef REAL
#undef LOG
#undef NAME

#define REAL double
#define LOG log
#define NAME(name) name##_f64
#include "native.c"

XLA_FFI_Error *dcdjax_segments_pass_f32(XLA_FFI_CallFrame *frame) {
  return handle(frame, XLA_FFI_DataType_F32, pass_part_f32);
}

XLA_FFI_Error *dcdjax_segments_pass_f64(XLA_FFI_CallFrame *frame) {
  return handle(frame, XLA_FFI_DataType_F64, pass_part_f64);
}

/* ---- The exact step, in float ---- */

/* Compute exp(x) = 2^n exp(f), |f| <= ln(2) / 2, for |x| < 87. The series of exp(f) ends below rounding errors. */
INLINE float exp_float(float x) {
  const float magic = 12582912.0f; /* 1.5 * 2^23: a number added to it is rounded to an integer */
  float n = (x * 1.44269504f + magic) - magic;
  float f = x - n * 0.693359375f + n * 2.12194440e-4f;
  float y = 1.0f / 5040;
  y = y * f + 1.0f / 720;
  y = y * f + 1.0f / 120;
  y = y * f + 1.0f / 24;
  y = y * f + 1.0f / 6;
  y = y * f + 0.5f;
  y = y * f + 1;
  y = y * f + 1;
  uint32_t bits = ((uint32_t)(int32_t)n + 127u) << 23;
  float scale;
  memcpy(&scale, &bits, sizeof scale);
  return y * scale;
}

enum { ROWS = 64 /* rows of a task */, MAX_CLIMBS = 16, FLOATS = VECTOR_BYTES / sizeof(float) };

typedef int32_t Mask __attribute__((vector_size(VECTOR_BYTES)));

typedef struct {
  const float *W, *ZW, *two_over_s, *poles; /* two_over_s and poles are padded, like A */
  float *out, exponent;
  int64_t num_words, num_topics, padded;
  atomic_bool no_memory;
} Step;

INLINE Vector_f32 chosen(Mask mask, Vector_f32 vector) { return (Vector_f32)(mask & (Mask)vector); }

INLINE float row_sum(const float *row, int64_t padded) {
  Vector_f32 total = {0};
  for (int64_t k = 0; k < padded; k += FLOATS) total += *(const Unaligned_f32 *)(row + k);
  return sum_f32(total);
}

/* Find x > 0 with sum_k A[k] / (poles[k] + x) = 1. The method is explained in method/row_root.py. */
static float row_root(const float *A, const float *poles, int64_t padded) {
  Vector_f32 most = (Vector_f32){0} + FLT_MIN;
  for (int64_t k = 0; k < padded; k += FLOATS) {
    Vector_f32 bound = *(const Unaligned_f32 *)(A + k) - *(const Unaligned_f32 *)(poles + k);
    Mask more = bound > most;
    most = (Vector_f32)((more & (Mask)bound) | (~more & (Mask)most));
  }
  float x = FLT_MIN;
  for (int i = 0; i < FLOATS; i++) x = most[i] > x ? most[i] : x;
  const double close = sqrt(FLT_EPSILON);
  for (int climb = 0; climb < MAX_CLIMBS; climb++) {
    Vector_f32 psi = {0}, slope = {0}, psi_near = {0}, slope_near = {0};
    for (int64_t k = 0; k < padded; k += FLOATS) {
      Vector_f32 pole = *(const Unaligned_f32 *)(poles + k), inverse = 1 / (pole + x);
      Vector_f32 term = *(const Unaligned_f32 *)(A + k) * inverse, part = term * (x * inverse);
      Vector_f32 here = (Vector_f32){0} + x;
      Mask near = pole <= here;
      psi += chosen(~near, term), slope += chosen(~near, part);
      psi_near += chosen(near, term), slope_near += chosen(near, part);
    }
    double far = sum_f32(psi), by = sum_f32(psi_near), slope_by = sum_f32(slope_near), slope_far = sum_f32(slope);
    double u_near = x * (by / fmax(slope_by, FLT_MIN)), u_far = x * (far / fmax(slope_far, FLT_MIN));
    double beta_near = by * u_near, beta_far = far * u_far;
    double gap = fmax(u_far - u_near, 0), p = beta_near + beta_far - gap;
    double root = sqrt(p * p + 4 * beta_near * gap);
    double v = p >= 0 ? (p + root) / 2 : beta_near * (2 * gap / fmax(root - p, FLT_MIN));
    float closer = (float)(x + (v - u_near));
    x = closer > x ? closer : x;
    if (!(fabs(by + far - 1) > close)) break;
  }
  return x;
}

/* Scale a row to sum to one, and raise its entries to the floor. NaN stays NaN. */
INLINE void onto_simplex(float *row, int64_t num_topics, int64_t padded) {
  const float floor = FLT_EPSILON * FLT_EPSILON, total = row_sum(row, padded);
  for (int64_t k = 0; k < num_topics; k++) {
    float share = row[k] / total;
    row[k] = share < floor ? floor : share;
  }
}

static void step_rows(void *job, int64_t index) {
  Step *step = job;
  const int64_t r = step->num_topics, padded = step->padded, first = index * ROWS;
  const int64_t end = first + ROWS < step->num_words ? first + ROWS : step->num_words;
  float *A = calloc((size_t)padded, sizeof(float));
  if (!A) {
    atomic_store(&step->no_memory, true);
    return;
  }
  for (int64_t i = first; i < end; i++) {
    const float *W = step->W + i * r, *ZW = step->ZW + i * r, *poles = step->poles;
    float *out = step->out + i * r;
    for (int64_t k = 0; k < r; k++) A[k] = W[k] * (ZW[k] * step->two_over_s[k]);
    const float x = row_root(A, poles, padded);
    for (int64_t k = 0; k < r; k++) A[k] = A[k] / (poles[k] + x);
    onto_simplex(A, r, padded);
    if (step->exponent != 1) {
      for (int64_t k = 0; k < r; k++) A[k] = W[k] * exp_float(step->exponent * log_float(A[k] / W[k]));
      onto_simplex(A, r, padded);
    }
    memcpy(out, A, (size_t)r * sizeof(float));
  }
  free(A);
}

/* Arguments: s and plus (1, topics), W and ZW (words, topics), the exponent (). Result: the next W. */
XLA_FFI_Error *dcdjax_exact_step_f32(XLA_FFI_CallFrame *frame) {
  if (answer_metadata(frame)) return NULL;
  const XLA_FFI_DataType dtype = XLA_FFI_DataType_F32;
  XLA_FFI_Buffer **args = (XLA_FFI_Buffer **)frame->args.args, **rets = (XLA_FFI_Buffer **)frame->rets.rets;
  if (frame->args.size != 5 || frame->rets.size != 1 || args[2]->rank != 2)
    return error(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT, "expected s, plus, W, ZW, exponent; one result");
  const int64_t N = args[2]->dims[0], r = args[2]->dims[1], num_threads = num_threads_of(&frame->attrs);
  if (!is(args[0], dtype, 2, 1, r) || !is(args[1], dtype, 2, 1, r) || !is(args[2], dtype, 2, N, r) ||
      !is(args[3], dtype, 2, N, r) || !is(args[4], dtype, 0, 0, 0) || !is(rets[0], dtype, 2, N, r))
    return error(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT, "expected float32 and shapes that fit W's");
  if (num_threads < 1)
    return error(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT, "num_threads must be an integer of at least 1");

  const float *s = args[0]->data, *plus = args[1]->data;
  const int64_t padded = (r + FLOATS - 1) / FLOATS * FLOATS;
  float *two_over_s = malloc(2 * (size_t)padded * sizeof(float));
  if (!two_over_s) return error(frame->api, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "no memory for a row");
  float *poles = two_over_s + padded, smallest = INFINITY;
  for (int64_t k = 0; k < r; k++) smallest = plus[k] < smallest ? plus[k] : smallest;
  for (int64_t k = 0; k < padded; k++) {
    two_over_s[k] = k < r ? 2 / s[k] : 0;
    poles[k] = k < r ? plus[k] - smallest : 1; /* padding has no weight, so its pole does not matter */
  }
  Step step = {
      .W = args[2]->data, .ZW = args[3]->data, .two_over_s = two_over_s, .poles = poles,
      .out = rets[0]->data, .exponent = *(const float *)args[4]->data,
      .num_words = N, .num_topics = r, .padded = padded,
  };
  run(step_rows, &step, (N + ROWS - 1) / ROWS, num_threads);
  free(two_over_s);
  if (atomic_load(&step.no_memory))
    return error(frame->api, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "no memory for a row");
  return NULL;
}

#else /* REAL is defined: the pass, for float or double */

#define VECTOR NAME(Vector)
#define UNALIGNED NAME(Unaligned)
#define LOAD(pointer) (*(const UNALIGNED *)(pointer))
#define WIDTH ((int64_t)(VECTOR_BYTES / sizeof(REAL)))

typedef REAL VECTOR __attribute__((vector_size(VECTOR_BYTES)));
typedef REAL UNALIGNED __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));

INLINE REAL NAME(sum)(VECTOR vector) {
  REAL part[VECTOR_BYTES / sizeof(REAL)];
  memcpy(part, &vector, sizeof part);
  for (int half = WIDTH / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) part[i] += part[i + half];
  return part[0];
}

/* Compute dots[i] = own . gathered[i]. If r is not a multiple of the vector's width, the last vector overlaps the one
   before it, and `own_end` is zero where they overlap. */
INLINE void NAME(dot)(const int group, const REAL *own, VECTOR own_end, const REAL *const *gathered, int64_t r,
                      REAL *dots) {
  if (r < WIDTH) {
    for (int i = 0; i < group; i++) {
      dots[i] = 0;
      for (int64_t k = 0; k < r; k++) dots[i] += own[k] * gathered[i][k];
    }
    return;
  }
  VECTOR sums[GROUP];
  for (int i = 0; i < group; i++) sums[i] = own_end * LOAD(gathered[i] + r - WIDTH);
  for (int64_t k = 0; k + WIDTH <= r; k += WIDTH) {
    VECTOR x = LOAD(own + k);
#pragma GCC unroll 8
    for (int i = 0; i < group; i++) sums[i] += x * LOAD(gathered[i] + k);
  }
#pragma GCC unroll 8
  for (int i = 0; i < group; i++) dots[i] = NAME(sum)(sums[i]);
}

/* Add sum_l Z[l] gathered[l] to `num_vectors` vectors of out. Meanwhile, prefetch the rows that are needed next. */
INLINE void NAME(add_block)(const int num_vectors, REAL *out, const REAL *Z, const REAL *const *gathered,
                            const REAL *const *next, int64_t k, int count) {
  VECTOR sums[BLOCK];
#pragma GCC unroll 8
  for (int i = 0; i < num_vectors; i++) sums[i] = LOAD(out + k + i * WIDTH);
  for (int l = 0; l < count; l++) {
    const REAL *row = gathered[l] + k;
#pragma GCC unroll 8
    for (int i = 0; i < num_vectors; i++) sums[i] += Z[l] * LOAD(row + i * WIDTH);
    for (int i = 0; i * LINE_BYTES < num_vectors * VECTOR_BYTES; i++)
      __builtin_prefetch((const char *)(next[l] + k) + i * LINE_BYTES);
  }
#pragma GCC unroll 8
  for (int i = 0; i < num_vectors; i++) *(UNALIGNED *)(out + k + i * WIDTH) = sums[i];
}

INLINE void NAME(add)(REAL *out, const REAL *Z, const REAL *const *gathered, const REAL *const *next, int64_t r,
                      int count) {
  if (r < WIDTH) {
    for (int l = 0; l < count; l++)
      for (int64_t k = 0; k < r; k++) out[k] += Z[l] * gathered[l][k];
    return;
  }
  int64_t k = 0;
  for (; k + BLOCK * WIDTH <= r; k += BLOCK * WIDTH) NAME(add_block)(BLOCK, out, Z, gathered, next, k, count);
  if (k + BLOCK / 2 * WIDTH <= r) {
    NAME(add_block)(BLOCK / 2, out, Z, gathered, next, k, count);
    k += BLOCK / 2 * WIDTH;
  }
  for (; k + WIDTH <= r; k += WIDTH) NAME(add_block)(1, out, Z, gathered, next, k, count);
  if (k < r) {
    REAL last[VECTOR_BYTES / sizeof(REAL)] = {0};
    VECTOR sums = {0};
    for (int l = 0; l < count; l++) sums += Z[l] * LOAD(gathered[l] + r - WIDTH);
    memcpy(last, &sums, sizeof last);
    for (; k < r; k++) out[k] += last[k - (r - WIDTH)];
  }
}

INLINE void NAME(prefetch_row)(const REAL *W_over_s, const REAL *ZW, int64_t row, int64_t r) {
  const char *own = (const char *)(W_over_s + row * r), *out = (const char *)(ZW + row * r);
  for (int64_t byte = 0; byte < r * (int64_t)sizeof(REAL); byte += LINE_BYTES) {
    __builtin_prefetch(own + byte);
    __builtin_prefetch(out + byte, 1);
  }
}

/* Process up to LANES nonzeros of one row. Return their sum of S log Shat. */
INLINE REAL NAME(pass_lanes)(const bool plain, const REAL *own, VECTOR own_end, REAL *out, const REAL *W, int64_t r,
                             const int32_t *columns, const int32_t *next_columns, const REAL *values, int count) {
  const REAL *gathered[LANES], *next[LANES];
  REAL Shat[LANES], Z[LANES], terms[LANES];
  REAL S[LANES] = {0};
  memcpy(S, values, (size_t)count * sizeof(REAL));
  int l = 0;
  for (; l < count; l++) {
    gathered[l] = W + r * columns[l];
    next[l] = W + r * next_columns[l];
  }
  if (plain) {
    NAME(add)(out, S, gathered, next, r, count);
    return 0;
  }
  for (; l < LANES; l++) gathered[l] = gathered[0]; /* empty lanes will add 0 log 1 */
  l = 0;
  for (; l + GROUP / 2 < count; l += GROUP) NAME(dot)(GROUP, own, own_end, gathered + l, r, Shat + l);
  if (l < count) NAME(dot)(GROUP / 2, own, own_end, gathered + l, r, Shat + l);
  for (l = count; l < LANES; l++) Shat[l] = 1;
  for (l = 0; l < LANES; l++) {
    Z[l] = S[l] / Shat[l];
    terms[l] = S[l] * LOG(Shat[l]);
  }
  NAME(add)(out, Z, gathered, next, r, count);
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) terms[i] += terms[i + half];
  return terms[0];
}

static void NAME(pass_part)(void *job, int64_t part) {
  Pass *pass = job;
  const REAL *W = pass->W, *W_over_s = pass->W_over_s, *all_values = pass->values;
  REAL *ZW = pass->ZW;
  const int64_t r = pass->num_topics, width = pass->width, end = pass->parts[part + 1];
  double log_likelihood = 0;
  for (int64_t segment = pass->parts[part]; segment < end; segment++) {
    const int32_t *columns = pass->columns + segment * width;
    const REAL *values = all_values + segment * width, *own = W_over_s + r * pass->rows[segment];
    REAL *out = ZW + r * pass->rows[segment];
    /* Whatever the caller has checked: nothing is read or written outside of W and ZW. */
    if (!are_rows(pass->rows + segment, 1, pass->num_words) || !are_rows(columns, width, pass->num_words)) {
      atomic_store(&pass->outside, true);
      return;
    }
    if (segment + 1 < end) NAME(prefetch_row)(W_over_s, ZW, pass->rows[segment + 1], r);
    VECTOR own_end = {0};
    if (r > WIDTH && r % WIDTH > 0) {
      REAL last[VECTOR_BYTES / sizeof(REAL)] = {0};
      for (int64_t k = r - r % WIDTH; k < r; k++) last[k - (r - WIDTH)] = own[k];
      memcpy(&own_end, last, sizeof last);
    }
    int64_t length = width;
    while (length > 0 && values[length - 1] == 0) length--; /* padding at the end needs no work */
    for (int64_t first = 0; first < length; first += LANES) {
      int count = (int)(length - first < LANES ? length - first : LANES);
      int64_t next = segment * width + (first + LANES < length ? first + LANES : width);
      if (next + count > end * width) next = segment * width + first; /* there is no next nonzero */
      log_likelihood +=
          NAME(pass_lanes)(pass->plain, own, own_end, out, W, r, columns + first, pass->columns + next,
                           values + first, count);
    }
  }
  pass->log_likelihoods[part] = log_likelihood;
}

#undef VECTOR
#undef UNALIGNED
#undef LOAD
#undef WIDTH

#endif
