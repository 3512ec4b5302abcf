/* A question to a model, its answer as it comes:  chat_c MODEL [QUESTION] */
#include <doppler/doppler_c.h>
#include <stdio.h>

static int show(const char* piece, size_t length, void* user) {
  (void)user;
  fwrite(piece, 1, length, stdout);
  fflush(stdout);
  return 1; /* 0 stops the answer */
}

int main(int argc, char** argv) {
  doppler_model* model = NULL;
  doppler_chat* chat = NULL;
  doppler_error* error = NULL;
  doppler_options options = DOPPLER_OPTIONS_INIT;
  doppler_code code;
  if (argc < 2) {
    fprintf(stderr, "usage: chat_c MODEL [QUESTION]\n");
    return DOPPLER_USAGE;
  }
  options.backend = "auto";
  code = doppler_model_open(argv[1], &model, &error);
  if (code == DOPPLER_OK) code = doppler_chat_open(model, &options, &chat, &error);
  if (code == DOPPLER_OK)
    code = doppler_chat_say(chat, argc > 2 ? argv[2] : "Tell me a story.", NULL, show, NULL, NULL, &error);
  if (code == DOPPLER_OK)
    printf("\n");
  else
    fprintf(stderr, "%s\n", doppler_error_message(error));
  doppler_error_free(error);
  doppler_chat_close(chat);
  doppler_model_close(model);
  return (int)code;
}
