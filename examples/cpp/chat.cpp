// A question to a model, its answer as it comes:  chat MODEL [QUESTION]
#include <doppler/doppler.h>

#include <iostream>

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: chat MODEL [QUESTION]\n";
    return 2;
  }
  try {
    auto model = doppler::Model::open(argv[1]);  // RDRR folder, GGUF file, Hugging Face folder
    doppler::Chat chat(model, {.backend = "auto"});
    chat.say(argc > 2 ? argv[2] : "Tell me a story.", [](std::string_view piece) {
      std::cout << piece << std::flush;
      return true;
    });
    std::cout << "\n";
  } catch (const doppler::Exception& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.code());
  }
}
