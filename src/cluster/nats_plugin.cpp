// libdoppler_nats.so: see nats_plugin.h.
#include "cluster/nats_plugin.h"

#include <nats/nats.h>

#include <atomic>
#include <cstdio>
#include <cstring>

namespace {

constexpr int64_t kSecond = 1'000'000'000;  // as NATS counts
constexpr int64_t kReconnectMs = 200;
constexpr int kAsyncPending = 512;
constexpr int64_t kMostUnacknowledged = 1 << 20;  // of all workers together

struct Connection {
  natsConnection* connection = nullptr;
  jsCtx* js = nullptr;
  std::atomic<uint64_t> failed{0};  // of what was sent
};

thread_local char reason[512] = "";

int outcome(natsStatus status, jsErrCode code = static_cast<jsErrCode>(0)) {
  if (status == NATS_OK) return kNatsDone;
  const char* more = nats_GetLastError(nullptr);
  std::snprintf(reason, sizeof(reason), "%s%s%s", natsStatus_GetText(status), more && *more ? ": " : "",
                more ? more : "");
  if (status == NATS_NOT_FOUND || code == JSStreamNotFoundErr || code == JSConsumerNotFoundErr) return kNatsMissing;
  switch (status) {
    case NATS_TIMEOUT:
    case NATS_NO_RESPONDERS:
    case NATS_NO_SERVER:
    case NATS_IO_ERROR:
    case NATS_CONNECTION_DISCONNECTED:
    case NATS_NOT_YET_CONNECTED:
    case NATS_STALE_CONNECTION: return kNatsLater;
    case NATS_ERR:
      // JetStream has not started yet, or it has lost its leader.
      return code == JSNotEnabledErr || code == JSClusterNotAvailErr || code == JSClusterNoPeersErr ? kNatsLater
                                                                                                    : kNatsRefused;
    default: return kNatsRefused;
  }
}

void on_stored(jsCtx*, natsMsg* message, jsPubAck*, jsPubAckErr* error, void* closure) {
  if (error) ++static_cast<Connection*>(closure)->failed;
  natsMsg_Destroy(message);
}

void close(void* connection) {
  auto* c = static_cast<Connection*>(connection);
  jsCtx_Destroy(c->js);
  natsConnection_Destroy(c->connection);
  delete c;
}

int connect(const char* url, const char* credentials_file, void** connection) {
  natsOptions* options = nullptr;
  auto* c = new Connection;
  jsOptions js;
  jsOptions_Init(&js);
  js.PublishAsync.MaxPending = kAsyncPending;
  js.PublishAsync.StallWait = 60'000;  // ms; the server is away longer than that
  js.PublishAsync.AckHandler = on_stored;
  js.PublishAsync.AckHandlerClosure = c;
  natsStatus status = natsOptions_Create(&options);
  if (status == NATS_OK) status = natsOptions_SetURL(options, url);
  if (status == NATS_OK) status = natsOptions_SetName(options, "doppler");
  if (status == NATS_OK) status = natsOptions_SetMaxReconnect(options, -1);
  if (status == NATS_OK) status = natsOptions_SetReconnectWait(options, kReconnectMs);
  if (status == NATS_OK && credentials_file)
    status = natsOptions_SetUserCredentialsFromFiles(options, credentials_file, nullptr);
  if (status == NATS_OK) status = natsConnection_Connect(&c->connection, options);
  if (status == NATS_OK) status = natsConnection_JetStream(&c->js, c->connection, &js);
  const int result = outcome(status);
  natsOptions_Destroy(options);
  if (result == kNatsDone) {
    *connection = c;
  } else {
    close(c);
  }
  return result;
}

size_t largest(void* connection) {
  const int64_t bytes = natsConnection_GetMaxPayload(static_cast<Connection*>(connection)->connection);
  return bytes > 0 ? static_cast<size_t>(bytes) : 0;
}

int make_stream(void* connection, const char* name, const char* subject, const char* about) {
  jsStreamConfig config;
  jsStreamConfig_Init(&config);
  config.Name = name;
  config.Description = about;
  config.Subjects = &subject;
  config.SubjectsLen = 1;
  jsErrCode code = static_cast<jsErrCode>(0);
  const natsStatus status = js_AddStream(nullptr, static_cast<Connection*>(connection)->js, &config, nullptr, &code);
  return code == JSStreamNameExistErr ? kNatsDone : outcome(status, code);
}

int look(void* connection, const char* name, const char* subject, NatsStream* stream) {
  jsStreamInfo* info = nullptr;
  jsOptions options;
  jsOptions_Init(&options);
  options.Stream.Info.SubjectsFilter = subject;
  jsErrCode code = static_cast<jsErrCode>(0);
  const natsStatus status = js_GetStreamInfo(&info, static_cast<Connection*>(connection)->js, name, &options, &code);
  if (status != NATS_OK) return outcome(status, code);
  std::snprintf(stream->about, sizeof(stream->about), "%s",
                info->Config && info->Config->Description ? info->Config->Description : "");
  stream->last = info->State.LastSeq;
  stream->matching = 0;
  const jsStreamStateSubjects* subjects = info->State.Subjects;
  for (int i = 0; subjects && i < subjects->Count; ++i) stream->matching += subjects->List[i].Msgs;
  jsStreamInfo_Destroy(info);
  return kNatsDone;
}

int remove_stream(void* connection, const char* name) {
  jsErrCode code = static_cast<jsErrCode>(0);
  const natsStatus status = js_DeleteStream(static_cast<Connection*>(connection)->js, name, nullptr, &code);
  return outcome(status, code);
}

int publish(void* connection, const char* subject, const char* id, const char* text, size_t size) {
  jsPubOptions options;
  jsPubOptions_Init(&options);
  options.MsgId = id;
  jsErrCode code = static_cast<jsErrCode>(0);
  const natsStatus status = js_Publish(nullptr, static_cast<Connection*>(connection)->js, subject, text,
                                       static_cast<int>(size), &options, &code);
  return outcome(status, code);
}

int store_behind(void* connection, const char* subject, const char* text, size_t size, uint64_t last) {
  jsPubOptions options;
  jsPubOptions_Init(&options);
  options.ExpectLastSeq = last;
  options.ExpectNoMessage = last == 0;
  return outcome(
      js_PublishAsync(static_cast<Connection*>(connection)->js, subject, text, static_cast<int>(size), &options));
}

int sent(void* connection, int64_t wait_ms) {
  auto* c = static_cast<Connection*>(connection);
  jsPubOptions options;
  jsPubOptions_Init(&options);
  options.MaxWait = wait_ms;
  const natsStatus status = js_PublishAsyncComplete(c->js, &options);
  if (status != NATS_OK) return outcome(status);
  if (c->failed.exchange(0) == 0) return kNatsDone;
  std::snprintf(reason, sizeof(reason), "some messages were not stored");
  return kNatsLater;
}

int open_consumer(void* connection, const char* stream, const char* name, const char* subject, int64_t ack_wait_ms,
                  void** consumer) {
  auto* c = static_cast<Connection*>(connection);
  jsConsumerConfig config;
  jsConsumerConfig_Init(&config);
  config.Durable = name;
  config.AckPolicy = js_AckExplicit;
  config.AckWait = ack_wait_ms * (kSecond / 1000);
  config.MaxDeliver = -1;
  config.MaxAckPending = kMostUnacknowledged;
  config.FilterSubject = subject;
  jsErrCode code = static_cast<jsErrCode>(0);
  natsStatus status = js_AddConsumer(nullptr, c->js, stream, &config, nullptr, &code);
  if (status != NATS_OK) return outcome(status, code);
  // Bound to what is there, so that it stays when this process leaves.
  jsSubOptions options;
  jsSubOptions_Init(&options);
  options.Stream = stream;
  options.Consumer = name;
  natsSubscription* subscription = nullptr;
  status = js_PullSubscribe(&subscription, c->js, subject, name, nullptr, &options, &code);
  *consumer = subscription;
  return outcome(status, code);
}

void close_consumer(void* consumer) { natsSubscription_Destroy(static_cast<natsSubscription*>(consumer)); }

int remove_consumer(void* connection, const char* stream, const char* name) {
  jsErrCode code = static_cast<jsErrCode>(0);
  const natsStatus status = js_DeleteConsumer(static_cast<Connection*>(connection)->js, stream, name, nullptr, &code);
  return outcome(status, code);
}

int backlog(void* connection, const char* stream, const char* name, uint64_t* waiting, uint64_t* unacknowledged) {
  jsConsumerInfo* info = nullptr;
  jsErrCode code = static_cast<jsErrCode>(0);
  const natsStatus status =
      js_GetConsumerInfo(&info, static_cast<Connection*>(connection)->js, stream, name, nullptr, &code);
  if (status != NATS_OK) return outcome(status, code);
  *waiting = info->NumPending;
  *unacknowledged = static_cast<uint64_t>(info->NumAckPending);
  jsConsumerInfo_Destroy(info);
  return kNatsDone;
}

int fetch(void* consumer, int most, int64_t wait_ms, NatsMessage* messages, int* count) {
  *count = 0;
  natsMsgList list = {};
  jsErrCode code = static_cast<jsErrCode>(0);
  const natsStatus status =
      natsSubscription_Fetch(&list, static_cast<natsSubscription*>(consumer), most, wait_ms, &code);
  if (status == NATS_TIMEOUT) return kNatsDone;
  if (status != NATS_OK) return outcome(status, code);
  for (int i = 0; i < list.Count; ++i) {
    jsMsgMetaData* about = nullptr;
    if (natsMsg_GetMetaData(&about, list.Msgs[i]) != NATS_OK) continue;
    messages[(*count)++] = {.handle = list.Msgs[i],
                            .text = natsMsg_GetData(list.Msgs[i]),
                            .size = static_cast<size_t>(natsMsg_GetDataLength(list.Msgs[i])),
                            .number = about->Sequence.Stream,
                            .delivered = about->NumDelivered};
    list.Msgs[i] = nullptr;
    jsMsgMetaData_Destroy(about);
  }
  natsMsgList_Destroy(&list);
  return kNatsDone;
}

int done(void* message) {
  jsErrCode code = static_cast<jsErrCode>(0);
  const natsStatus status = natsMsg_AckSync(static_cast<natsMsg*>(message), nullptr, &code);
  return outcome(status, code);
}
int working(void* message) { return outcome(natsMsg_InProgress(static_cast<natsMsg*>(message), nullptr)); }
int hand_back(void* message) { return outcome(natsMsg_Nak(static_cast<natsMsg*>(message), nullptr)); }
void release(void* message) { natsMsg_Destroy(static_cast<natsMsg*>(message)); }
const char* why() { return reason; }

}  // namespace

extern "C" __attribute__((visibility("default"))) const NatsPlugin* doppler_nats_plugin() {
  static NatsPlugin plugin;
  plugin.connect = connect;
  plugin.close = close;
  plugin.largest = largest;
  plugin.make_stream = make_stream;
  plugin.look = look;
  plugin.remove_stream = remove_stream;
  plugin.publish = publish;
  plugin.send = store_behind;
  plugin.sent = sent;
  plugin.open_consumer = open_consumer;
  plugin.close_consumer = close_consumer;
  plugin.remove_consumer = remove_consumer;
  plugin.backlog = backlog;
  plugin.fetch = fetch;
  plugin.done = done;
  plugin.working = working;
  plugin.hand_back = hand_back;
  plugin.release = release;
  plugin.why = why;
  return &plugin;
}
