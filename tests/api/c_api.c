/* The C API, used and misused; compiled as C11. Prints nothing and exits with 0 if all is as doppler_c.h says. Meant to
 * run under valgrind or the sanitizers, too.   c_api MODEL */
#include <doppler/doppler_c.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                \
  do {                                                                  \
    if (!(condition)) {                                                 \
      fprintf(stderr, "line %d: %s is not so\n", __LINE__, #condition); \
      exit(1);                                                          \
    }                                                                   \
  } while (0)

static const char* kQuestion = "What color is the sky?";
static const char* kAnswer = "The color of the sky is blue.";
static const char* path;

/* The call must fail with this code and an error whose message has these words. */
static void refused(doppler_code code, doppler_error** given, doppler_code expected, const char* words) {
  doppler_error* error = *given; /* read here: arguments are computed in any order */
  CHECK(code == expected);
  CHECK(error != NULL);
  CHECK(doppler_error_code(error) == expected);
  CHECK(strstr(doppler_error_message(error), words) != NULL);
  CHECK(doppler_error_where(error) != NULL && doppler_error_expected(error) != NULL);
  CHECK(doppler_error_got(error) != NULL && doppler_error_todo(error) != NULL);
  CHECK(doppler_error_what(error)[0] != '\0');
  doppler_error_free(error);
}

struct collected {
  char text[4096];
  size_t length;
  int calls, stop_after; /* 0: never */
  doppler_chat* close;   /* from inside the callback */
  doppler_chat* reenter;
};

static int collect(const char* piece, size_t length, void* user) {
  struct collected* c = user;
  CHECK(strlen(piece) == length && c->length + length < sizeof c->text);
  memcpy(c->text + c->length, piece, length + 1);
  c->length += length;
  if (c->close) doppler_chat_close(c->close);
  if (c->reenter) {
    doppler_error* error = NULL;
    doppler_code code = doppler_chat_say(c->reenter, kQuestion, NULL, NULL, NULL, NULL, &error);
    refused(code, &error, DOPPLER_USAGE, "busy");
  }
  return ++c->calls != c->stop_after;
}

static doppler_model* open_model(void) {
  doppler_model* model = NULL;
  CHECK(doppler_model_open(path, &model, NULL) == DOPPLER_OK && model != NULL);
  return model;
}

static doppler_chat* open_chat(doppler_model* model) {
  doppler_options options = DOPPLER_OPTIONS_INIT;
  doppler_chat* chat = NULL;
  options.backend = "cpu";
  options.context = 256;
  options.threads = 1;
  CHECK(doppler_chat_open(model, &options, &chat, NULL) == DOPPLER_OK && chat != NULL);
  return chat;
}

static void answers(void) {
  doppler_model* model = open_model();
  doppler_chat* chat = open_chat(model);
  doppler_reply* reply = NULL;
  struct collected c = {0};
  doppler_model_info info = {0};
  CHECK(doppler_chat_say(chat, kQuestion, NULL, collect, &c, &reply, NULL) == DOPPLER_OK);
  CHECK(strcmp(c.text, kAnswer) == 0);
  CHECK(strcmp(doppler_reply_text(reply), kAnswer) == 0 && doppler_reply_length(reply) == strlen(kAnswer));
  CHECK(doppler_reply_stop(reply) == DOPPLER_STOP_END);
  CHECK(doppler_reply_token_count(reply) > 3 && doppler_reply_tokens(reply)[0] > 0);
  CHECK(doppler_reply_prompt_tokens(reply) > 5 && doppler_reply_prompt_ms(reply) > 0);
  doppler_reply_free(reply);
  info.size = sizeof info;
  CHECK(doppler_model_get_info(model, &info, NULL) == DOPPLER_OK);
  CHECK(strcmp(info.id, "tiny") == 0 && info.can_chat && info.vocabulary > 1000);

  CHECK(doppler_chat_clear(chat, NULL) == DOPPLER_OK);
  CHECK(doppler_chat_set_system(chat, "You are brief.", NULL) == DOPPLER_OK);
  memset(&c, 0, sizeof c);
  c.stop_after = 3;
  CHECK(doppler_chat_say(chat, "Tell me a story.", NULL, collect, &c, &reply, NULL) == DOPPLER_OK);
  CHECK(doppler_reply_stop(reply) == DOPPLER_STOP_INTERRUPTED && c.calls == 3);
  doppler_reply_free(reply);
  doppler_chat_close(chat);
  doppler_model_close(model);
}

static void completes(void) {
  doppler_model* model = open_model();
  doppler_completion* completion = NULL;
  doppler_options options = DOPPLER_OPTIONS_INIT;
  doppler_answer_options answer = DOPPLER_ANSWER_OPTIONS_INIT;
  doppler_reply* reply = NULL;
  int32_t tokens[64];
  size_t count = 0;
  const char* stop[] = {"."};
  options.backend = "cpu";
  CHECK(doppler_completion_open(model, &options, &completion, NULL) == DOPPLER_OK);
  answer.max_tokens = 2;
  CHECK(doppler_completion_run(completion, "The color of the sky is", &answer, NULL, NULL, &reply, NULL) == DOPPLER_OK);
  CHECK(strcmp(doppler_reply_text(reply), " blue.") == 0);
  CHECK(doppler_reply_stop(reply) == DOPPLER_STOP_MAX_TOKENS);
  doppler_reply_free(reply);
  CHECK(doppler_model_tokenize(model, "The color of the sky is", 1, tokens, 64, &count, NULL) == DOPPLER_OK);
  CHECK(count > 3 && count < 64);
  answer.stop = stop;
  answer.stop_count = 1;
  CHECK(doppler_completion_run_tokens(completion, tokens, count, &answer, NULL, NULL, &reply, NULL) == DOPPLER_OK);
  CHECK(strcmp(doppler_reply_text(reply), " blue") == 0 && doppler_reply_stop(reply) == DOPPLER_STOP_TEXT);
  doppler_reply_free(reply);
  doppler_completion_close(completion);
  doppler_model_close(model);
}

static void misuses(void) {
  doppler_model *model = open_model(), *none = (doppler_model*)(uintptr_t)0xdead;
  doppler_chat *chat = open_chat(model), *other = NULL;
  doppler_error* error = NULL;
  doppler_options options = DOPPLER_OPTIONS_INIT;
  doppler_answer_options answer = DOPPLER_ANSWER_OPTIONS_INIT;
  struct collected c = {0};
  int32_t wild = 1 << 30;
  doppler_completion* completion = NULL;

  refused(doppler_model_open("/nowhere", &none, &error), &error, DOPPLER_FILE, "there is no model here");
  CHECK(none == NULL);
  refused(doppler_model_open(NULL, &none, &error), &error, DOPPLER_USAGE, "path");
  refused(doppler_model_open(path, NULL, &error), &error, DOPPLER_USAGE, "model");
  CHECK(doppler_model_open("/nowhere", &none, NULL) == DOPPLER_FILE);
  refused(doppler_chat_open(NULL, NULL, &other, &error), &error, DOPPLER_USAGE, "not open");
  refused(doppler_chat_open((doppler_model*)(void*)chat, NULL, &other, &error), &error, DOPPLER_USAGE, "not open");
  options.backend = "quantum";
  refused(doppler_chat_open(model, &options, &other, &error), &error, DOPPLER_USAGE, "unknown backend");
  options.size = 0;
  refused(doppler_chat_open(model, &options, &other, &error), &error, DOPPLER_USAGE, "size");
  refused(doppler_chat_say(chat, NULL, NULL, NULL, NULL, NULL, &error), &error, DOPPLER_USAGE, "text");
  answer.max_tokens = 0;
  refused(doppler_chat_say(chat, kQuestion, &answer, NULL, NULL, NULL, &error), &error, DOPPLER_USAGE, "max_tokens");
  options = (doppler_options)DOPPLER_OPTIONS_INIT;
  options.backend = "cpu"; /* nothing of a GPU's driver is looked at for leaks */
  CHECK(doppler_completion_open(model, &options, &completion, NULL) == DOPPLER_OK);
  refused(doppler_completion_run_tokens(completion, &wild, 1, NULL, NULL, NULL, NULL, &error), &error, DOPPLER_USAGE,
          "not one of the model's");
  refused(doppler_completion_run_tokens(completion, NULL, 0, NULL, NULL, NULL, NULL, &error), &error, DOPPLER_USAGE,
          "empty");

  c.reenter = chat; /* a call from inside a call */
  c.stop_after = 2;
  CHECK(doppler_chat_say(chat, kQuestion, NULL, collect, &c, NULL, NULL) == DOPPLER_OK && c.calls == 2);

  doppler_model_close(model); /* before what was opened on it */
  refused(doppler_chat_say(chat, kQuestion, NULL, NULL, NULL, NULL, &error), &error, DOPPLER_USAGE, "model is closed");
  refused(doppler_completion_run(completion, "x", NULL, NULL, NULL, NULL, &error), &error, DOPPLER_USAGE, "closed");
  refused(doppler_chat_open(model, NULL, &other, &error), &error, DOPPLER_USAGE, "not open");
  CHECK(other == NULL);
  doppler_model_close(model);
  doppler_completion_close(completion);
  doppler_chat_close(chat);
  doppler_chat_close(chat);
  refused(doppler_chat_say(chat, kQuestion, NULL, NULL, NULL, NULL, &error), &error, DOPPLER_USAGE, "not open");

  model = open_model(); /* a chat that is closed while it speaks */
  memset(&c, 0, sizeof c);
  c.close = chat = open_chat(model);
  CHECK(doppler_chat_say(chat, kQuestion, NULL, collect, &c, NULL, NULL) == DOPPLER_OK);
  CHECK(strcmp(c.text, kAnswer) == 0);
  refused(doppler_chat_say(chat, kQuestion, NULL, NULL, NULL, NULL, &error), &error, DOPPLER_USAGE, "not open");
  doppler_model_close(model);

  doppler_error_free(NULL);
  doppler_reply_free(NULL);
  doppler_model_close(NULL);
  CHECK(doppler_error_code(NULL) == DOPPLER_OK && doppler_reply_length(NULL) == 0);
}

static void embeds(void) {
  doppler_model* model = open_model();
  doppler_embedder* embedder = NULL;
  doppler_options options = DOPPLER_OPTIONS_INIT;
  doppler_error* error = NULL;
  doppler_model_info info;
  const char* texts[] = {"The cat sat on the mat.", "Rain fell for a week."};
  float both[2048], one[1024];
  size_t width = 0, all;
  double square = 0;
  info.size = sizeof info;
  CHECK(doppler_model_get_info(model, &info, NULL) == DOPPLER_OK && info.makes_text);
  all = (size_t)info.embedding_width;
  CHECK(all > 0 && 2 * all <= 2048);
  options.backend = "cpu"; /* nothing of a GPU's driver is looked at for leaks */
  CHECK(doppler_embedder_open(model, &options, &embedder, NULL) == DOPPLER_OK);
  CHECK(doppler_embedder_embed(embedder, texts, 2, NULL, both, 2048, &width, NULL) == DOPPLER_OK && width == all);
  CHECK(doppler_embedder_embed(embedder, texts + 1, 1, NULL, one, 1024, &width, NULL) == DOPPLER_OK);
  CHECK(memcmp(one, both + all, all * sizeof(float)) == 0);
  for (size_t i = 0; i < all; ++i) square += (double)one[i] * one[i];
  CHECK(square > 0.999 && square < 1.001);
  doppler_code code = doppler_embedder_embed(embedder, texts, 2, NULL, both, 2 * all - 1, &width, &error);
  refused(code, &error, DOPPLER_USAGE, "no place");
  code = doppler_embedder_embed(embedder, texts, 2, NULL, NULL, 2048, &width, &error);
  refused(code, &error, DOPPLER_USAGE, "no place");
  doppler_embed_options cut = DOPPLER_EMBED_OPTIONS_INIT;
  cut.dimensions = 8;
  code = doppler_embedder_embed(embedder, texts, 2, &cut, both, 2048, &width, &error);
  refused(code, &error, DOPPLER_USAGE, "do not have so many");
  doppler_model_close(model);
  code = doppler_embedder_embed(embedder, texts, 2, NULL, both, 2048, &width, &error);
  refused(code, &error, DOPPLER_USAGE, "closed");
  doppler_embedder_close(embedder);
  doppler_embedder_close(embedder);
  code = doppler_embedder_embed(embedder, texts, 2, NULL, both, 2048, &width, &error);
  refused(code, &error, DOPPLER_USAGE, "not open");
}

static void* talk(void* user) {
  doppler_model* model = open_model();
  doppler_chat* chat = open_chat(model);
  struct collected c = {0};
  (void)user;
  CHECK(doppler_chat_say(chat, kQuestion, NULL, collect, &c, NULL, NULL) == DOPPLER_OK);
  CHECK(strcmp(c.text, kAnswer) == 0);
  doppler_chat_close(chat);
  doppler_model_close(model);
  return NULL;
}

int main(int argc, char** argv) {
  pthread_t threads[2];
  CHECK(argc == 2);
  path = argv[1];
  CHECK(doppler_version()[0] != '\0');
  answers();
  completes();
  embeds();
  misuses();
  for (int i = 0; i < 2; ++i) CHECK(pthread_create(&threads[i], NULL, talk, NULL) == 0);
  for (int i = 0; i < 2; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  return 0;
}
