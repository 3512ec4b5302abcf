// What libdoppler_nats.so offers the program: the few things that it wants of NATS JetStream, as a table. The program
// finds it by dlopen and is not linked with libnats; the plug-in knows nothing of the program.
#pragma once

#include <cstddef>
#include <cstdint>

inline constexpr int kNatsPluginVersion = 1;
inline constexpr const char* kNatsPluginFile = "libdoppler_nats.so";
inline constexpr const char* kNatsPluginSymbol = "doppler_nats_plugin";

// What a function returns. kNatsLater: the server is away or busy, and the same may go well in a moment.
enum NatsOutcome : int { kNatsDone = 0, kNatsLater, kNatsMissing, kNatsRefused };

struct NatsStream {
  char about[256] = "";   // its description
  uint64_t last = 0;      // number of the last message; they are counted from 1
  uint64_t matching = 0;  // messages of the subject that was asked for
};

struct NatsMessage {
  void* handle = nullptr;
  const char* text = nullptr;  // valid until the handle is released
  size_t size = 0;
  uint64_t number = 0;     // in its stream
  uint64_t delivered = 0;  // times, this one included
};

// Any thread may call any of them, but for one consumer only one at a time.
struct NatsPlugin {
  int version = kNatsPluginVersion;
  int (*connect)(const char* url, const char* credentials_file, void** connection) = nullptr;
  void (*close)(void* connection) = nullptr;
  size_t (*largest)(void* connection) = nullptr;  // bytes of a message
  // There already is fine. Messages stay until the stream is removed.
  int (*make_stream)(void* connection, const char* name, const char* subject, const char* about) = nullptr;
  int (*look)(void* connection, const char* name, const char* subject, NatsStream* stream) = nullptr;
  int (*remove_stream)(void* connection, const char* name) = nullptr;
  // Returns when it is stored. Of messages with the same id within minutes one is.
  int (*publish)(void* connection, const char* subject, const char* id, const char* text, size_t size) = nullptr;
  // Returns at once; it is stored as the message after `last`, or not at all. sent() waits for all of them and returns
  // kNatsLater where some were not stored.
  int (*send)(void* connection, const char* subject, const char* text, size_t size, uint64_t last) = nullptr;
  int (*sent)(void* connection, int64_t wait_ms) = nullptr;
  // Many may have the same consumer, by its name: each message goes to one of them, and to another when it was not
  // acknowledged so long.
  int (*open_consumer)(void* connection, const char* stream, const char* name, const char* subject, int64_t ack_wait_ms,
                       void** consumer) = nullptr;
  void (*close_consumer)(void* consumer) = nullptr;
  int (*remove_consumer)(void* connection, const char* stream, const char* name) = nullptr;
  int (*backlog)(void* connection, const char* stream, const char* name, uint64_t* waiting,
                 uint64_t* unacknowledged) = nullptr;
  int (*fetch)(void* consumer, int most, int64_t wait_ms, NatsMessage* messages, int* count) = nullptr;  // none is fine
  int (*done)(void* message) = nullptr;       // returns when the server knows
  int (*working)(void* message) = nullptr;    // its time begins anew
  int (*hand_back)(void* message) = nullptr;  // somebody else may have it now
  void (*release)(void* message) = nullptr;
  // What the last call of this thread that did not end in kNatsDone said.
  const char* (*why)() = nullptr;
};
