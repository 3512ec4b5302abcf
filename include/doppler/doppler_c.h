/* Doppler for C, and for whatever calls C.
 *
 * Handles. Models, chats, completions and embedders are numbers in the shape of pointers; nothing lies where they
 * point. A handle that was closed, is NULL or is of another kind is refused with DOPPLER_USAGE, and no handle is given
 * twice. A chat, completion or embedder whose model was closed is refused, too; it still has to be closed itself. To
 * close twice does nothing.
 *
 * Errors. A function that can fail returns DOPPLER_OK or the kind of its error, and nothing is ever thrown through it.
 * Where `error` is not NULL it is set to NULL or to an error that doppler_error_free() must free.
 *
 * Strings. What goes in is UTF-8, ends with a zero byte, and is copied. What comes out belongs to the error, reply or
 * model it was asked of, and is valid until that one is freed or closed.
 *
 * Threads. Everything may be called from any thread. A model serves any number of threads at once. A chat, a
 * completion or an embedder does one thing at a time; another call on it meanwhile is refused with DOPPLER_USAGE.
 * Replies and errors belong to whoever got them.
 *
 * Structures of options begin with their size, and are set up by DOPPLER_OPTIONS_INIT, DOPPLER_ANSWER_OPTIONS_INIT and
 * DOPPLER_EMBED_OPTIONS_INIT, so that programs compiled against an older header go on working. In place of any, NULL
 * stands for the defaults. */
#ifndef DOPPLER_C_H
#define DOPPLER_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define DOPPLER_C_API __attribute__((visibility("default")))
#else
#define DOPPLER_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct doppler_model doppler_model;
typedef struct doppler_chat doppler_chat;
typedef struct doppler_completion doppler_completion;
typedef struct doppler_embedder doppler_embedder;
typedef struct doppler_reply doppler_reply;
typedef struct doppler_error doppler_error;

typedef enum doppler_code {
  DOPPLER_OK = 0,
  DOPPLER_USAGE = 2,       /* an argument is wrong, or a call that makes no sense now */
  DOPPLER_FILE = 3,        /* missing, unreadable */
  DOPPLER_FORMAT = 4,      /* bytes that do not mean what they should */
  DOPPLER_UNSUPPORTED = 5, /* well formed, but nothing this engine does */
  DOPPLER_MEMORY = 6,      /* it does not fit */
  DOPPLER_DEVICE = 7,      /* the GPU or its driver refused or was lost */
  DOPPLER_INTERNAL = 70    /* a bug of ours */
} doppler_code;

DOPPLER_C_API const char* doppler_version(void); /* "0.1.0" */

/* ---- errors ---- */

DOPPLER_C_API doppler_code doppler_error_code(const doppler_error* error);
DOPPLER_C_API const char* doppler_error_message(const doppler_error* error); /* all of it, for a person */
DOPPLER_C_API const char* doppler_error_what(const doppler_error* error);
DOPPLER_C_API const char* doppler_error_where(const doppler_error* error);
DOPPLER_C_API const char* doppler_error_expected(const doppler_error* error); /* "" where there is nothing to say */
DOPPLER_C_API const char* doppler_error_got(const doppler_error* error);
DOPPLER_C_API const char* doppler_error_todo(const doppler_error* error);
DOPPLER_C_API void doppler_error_free(doppler_error* error);

/* ---- models ---- */

/* An RDRR folder, a GGUF file (any part of a split one), or a Hugging Face folder. */
DOPPLER_C_API doppler_code doppler_model_open(const char* path, doppler_model** model, doppler_error** error);
DOPPLER_C_API void doppler_model_close(doppler_model* model);

typedef struct doppler_model_info {
  size_t size; /* sizeof(doppler_model_info), set by the caller */
  const char* id;
  const char* quantization;
  int32_t layers, vocabulary, max_context;
  uint64_t bytes;
  int32_t has_tokenizer, can_chat;
  size_t note_count; /* what had to be done to its weights, and what was left out */
  const char* const* notes;
  int32_t makes_text;      /* 0: it makes vectors of texts, and no chat or completion */
  int32_t embedding_width; /* numbers of a text's vector */
} doppler_model_info;
DOPPLER_C_API doppler_code doppler_model_get_info(doppler_model* model, doppler_model_info* info,
                                                  doppler_error** error);

/* Writes at most `capacity` tokens and sets `count` to how many there are. `special` adds the tokens that the model
 * wants around a text. */
DOPPLER_C_API doppler_code doppler_model_tokenize(doppler_model* model, const char* text, int32_t special,
                                                  int32_t* tokens, size_t capacity, size_t* count,
                                                  doppler_error** error);

/* ---- answers ---- */

/* A LoRA adapter beside a model's weights. */
typedef struct doppler_lora {
  const char* path; /* a PEFT folder, or a GGUF adapter of llama.cpp's */
  float scale;      /* what it is multiplied with; 1: as it was made */
} doppler_lora;

typedef struct doppler_options {
  size_t size;
  const char* backend;      /* NULL or "auto", "webgpu", "cpu", "ref" */
  int32_t device;           /* which GPU, as `doppler devices` counts them; -1: the best */
  int32_t context;          /* tokens to make room for; 0: the model's own, at most 4096 */
  int32_t threads;          /* of the CPU; 0: one per core */
  int32_t self_test;        /* compare a GPU with the CPU before the first token */
  uint64_t gpu_memory;      /* the most bytes to take on a GPU; 0: what it needs */
  int32_t verify;           /* hold an artefact's bytes against its hashes, once for each file */
  const doppler_lora* lora; /* all of them are added up */
  size_t lora_count;
} doppler_options;
#define DOPPLER_OPTIONS_INIT \
  { sizeof(doppler_options), NULL, -1, 0, 0, 1, 0, 1, NULL, 0 }

typedef struct doppler_answer_options {
  size_t size;
  int32_t max_tokens;
  float temperature; /* 0 always takes the likeliest token */
  int32_t top_k;     /* of these four, -1 stands for what the model's makers recommend */
  float top_p;
  float min_p;
  float repeat_penalty;
  int32_t has_seed; /* 0: a random one */
  uint64_t seed;
  const char* const* stop; /* the answer ends before any of these appears */
  size_t stop_count;
} doppler_answer_options;
#define DOPPLER_ANSWER_OPTIONS_INIT \
  { sizeof(doppler_answer_options), 512, 0, -1, -1, -1, -1, 0, 0, NULL, 0 }

/* Called with each piece of text as soon as it is certain: whole characters, sometimes none, zero byte behind them. 0
 * stops the answer. Must not throw or jump. It may close handles, that of the answer included. */
typedef int (*doppler_on_piece)(const char* piece, size_t length, void* user);

DOPPLER_C_API doppler_code doppler_chat_open(doppler_model* model, const doppler_options* options, doppler_chat** chat,
                                             doppler_error** error);
DOPPLER_C_API void doppler_chat_close(doppler_chat* chat);
DOPPLER_C_API doppler_code doppler_chat_set_system(doppler_chat* chat, const char* text, doppler_error** error);
DOPPLER_C_API doppler_code doppler_chat_clear(doppler_chat* chat, doppler_error** error);
/* Asks, and keeps question and answer, also one that was stopped. `on_piece` and `reply` may be NULL; a reply must be
 * freed. */
DOPPLER_C_API doppler_code doppler_chat_say(doppler_chat* chat, const char* text, const doppler_answer_options* options,
                                            doppler_on_piece on_piece, void* user, doppler_reply** reply,
                                            doppler_error** error);

DOPPLER_C_API doppler_code doppler_completion_open(doppler_model* model, const doppler_options* options,
                                                   doppler_completion** completion, doppler_error** error);
DOPPLER_C_API void doppler_completion_close(doppler_completion* completion);
DOPPLER_C_API doppler_code doppler_completion_run(doppler_completion* completion, const char* prompt,
                                                  const doppler_answer_options* options, doppler_on_piece on_piece,
                                                  void* user, doppler_reply** reply, doppler_error** error);
DOPPLER_C_API doppler_code doppler_completion_run_tokens(doppler_completion* completion, const int32_t* tokens,
                                                         size_t count, const doppler_answer_options* options,
                                                         doppler_on_piece on_piece, void* user, doppler_reply** reply,
                                                         doppler_error** error);

typedef enum doppler_stop {
  DOPPLER_STOP_END = 0,          /* the model ended its answer */
  DOPPLER_STOP_TEXT = 1,         /* one of `stop` appeared */
  DOPPLER_STOP_MAX_TOKENS = 2,   /* max_tokens are written */
  DOPPLER_STOP_CONTEXT_FULL = 3, /* there is no room for more */
  DOPPLER_STOP_INTERRUPTED = 4   /* on_piece said so */
} doppler_stop;

DOPPLER_C_API const char* doppler_reply_text(const doppler_reply* reply);
DOPPLER_C_API size_t doppler_reply_length(const doppler_reply* reply); /* bytes of the text */
DOPPLER_C_API const int32_t* doppler_reply_tokens(const doppler_reply* reply);
DOPPLER_C_API size_t doppler_reply_token_count(const doppler_reply* reply);
DOPPLER_C_API doppler_stop doppler_reply_stop(const doppler_reply* reply);
DOPPLER_C_API int32_t doppler_reply_prompt_tokens(const doppler_reply* reply);
DOPPLER_C_API double doppler_reply_prompt_ms(const doppler_reply* reply);
DOPPLER_C_API double doppler_reply_answer_ms(const doppler_reply* reply);
DOPPLER_C_API void doppler_reply_free(doppler_reply* reply);

/* ---- vectors of texts ---- */

typedef struct doppler_embed_options {
  size_t size;
  int32_t dimensions;      /* 0: all; else the first so many, at length 1 again, of a model made for vectors */
  int32_t truncate;        /* cut what is longer than the context, which is an error otherwise */
  const char* prompt_name; /* what is put before a text, by the model's name for it; NULL: its default */
} doppler_embed_options;
#define DOPPLER_EMBED_OPTIONS_INIT \
  { sizeof(doppler_embed_options), 0, 0, NULL }

DOPPLER_C_API doppler_code doppler_embedder_open(doppler_model* model, const doppler_options* options,
                                                 doppler_embedder** embedder, doppler_error** error);
DOPPLER_C_API void doppler_embedder_close(doppler_embedder* embedder);
/* Writes `count` vectors behind each other, and sets `width` to how many numbers each has: `dimensions`, or the model's
 * embedding_width. Refused where `capacity` floats are too few. */
DOPPLER_C_API doppler_code doppler_embedder_embed(doppler_embedder* embedder, const char* const* texts, size_t count,
                                                  const doppler_embed_options* options, float* vectors, size_t capacity,
                                                  size_t* width, doppler_error** error);

#ifdef __cplusplus
}
#endif

#endif /* DOPPLER_C_H */
