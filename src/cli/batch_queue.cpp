#include "cli/batch_queue.h"

#include <fmt/format.h>

#include <memory>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/say.h"
#include "cli/interrupt.h"
#include "cli/serving.h"
#include "serve/batch_queue.h"

namespace doppler {
namespace {

struct QueueArguments {
  std::string name, input, output, server = "nats://127.0.0.1:4222", credentials;
  std::vector<std::string> models;
  EngineArguments engine;
  int sequences = 256, ack_wait = 30;
  bool ordered = false, remove = false;
};

// Calls the work with a bar, which counts what is done of what there was to do.
void queue_job(const QueueArguments& a, const char* unit,
               const std::function<serve::BatchCounts(serve::QueueOptions, serve::BatchOptions)>& work,
               const char* sentence) {
  serve::QueueOptions queue;
  queue.name = a.name;
  queue.ack_wait_s = a.ack_wait;
  queue.server.url = a.server;
  queue.server.credentials = a.credentials;
  serve::BatchOptions batch;
  batch.input = a.input;
  batch.output = a.output;
  batch.ordered = a.ordered;
  const InterruptFlag interrupt({SIGINT, SIGTERM, SIGHUP});
  batch.stopping = queue.server.stopping = [&] { return interrupt.raised(); };
  serve::BatchCounts counts;
  const double begun = steady_seconds();
  {
    Progress bar("batch", unit);
    batch.on_progress = [&](const serve::BatchCounts& now) { bar.update(now.answered, now.all - now.kept); };
    counts = work(std::move(queue), std::move(batch));
  }
  if (log_level() == LogLevel::kSilent) return;
  say("{}: {} of {} {} {} in {:.1f} s", a.name, counts.answered, counts.all, unit, sentence, steady_seconds() - begun);
}

Verb add_queue_verb(Verb batch, const std::string& name, const std::string& about,
                    const std::shared_ptr<QueueArguments>& a) {
  Verb verb = batch.add_verb(name, about);
  verb.add_option("--server", a->server, "Address of the NATS server, which must have JetStream").show_default();
  verb.add_option("--credentials", a->credentials, "File with the credentials for it").existing_file();
  return verb;
}

}  // namespace

void add_batch_queue(Verb batch, const std::shared_ptr<bool>& worked) {
  const auto a = std::make_shared<QueueArguments>();
  const char* of_batch = "Name of the batch: letters, digits, _ and -";

  Verb submit = add_queue_verb(batch, "submit", "Store a file's requests in NATS JetStream, for workers", a);
  submit.add_option("input", a->input, "Requests, as for doppler batch").required();
  submit.add_option("name", a->name, of_batch).required();
  submit.footer("Example:\n  doppler batch submit requests.jsonl night");
  submit.callback([a, worked] {
    *worked = true;
    queue_job(
        *a, "requests",
        [](const serve::QueueOptions& queue, const serve::BatchOptions& options) {
          return serve::submit_batch(options.input, queue, options.on_progress);
        },
        "stored");
  });

  Verb work =
      add_queue_verb(batch, "work", "Answer requests that were submitted, beside other workers, to the last", a);
  work.add_option("name", a->name, of_batch).required();
  work.add_option("models", a->models, "As for doppler batch");
  work.add_option("--sequences", a->sequences, "Answers that run at once at most, if the cache has room for them")
      .range(1, 1024)
      .show_default();
  work.add_option(
          "--ack-wait", a->ack_wait,
          "Seconds after which the requests of a worker that is not heard of go to another; all workers say the "
          "same")
      .range(1, 3600)
      .show_default();
  add_engine_options(work, a->engine);
  work.footer("Example:\n  doppler batch work night models/tiny");
  work.callback([a, worked] {
    *worked = true;
    queue_job(
        *a, "requests",
        [&](const serve::QueueOptions& queue, serve::BatchOptions options) {
          options.models = model_specs(a->models, a->engine.adapters);
          options.engine = engine_options(a->engine, a->sequences);
          options.engine.queue = 2 * a->sequences;
          options.engine.on_event = [](const serve::EngineEvent& event) {
            if (info_enabled()) say_dim("{} {}: {}", event.model, event.what, event.detail);
          };
          return serve::work_on_batch(queue, options);
        },
        "answered here");
  });

  Verb collect = add_queue_verb(batch, "collect", "Write the answers of a batch to a file, when all are there", a);
  collect.add_option("input", a->input, "The requests that were submitted").required();
  collect.add_option("output", a->output, "Answers, as of doppler batch").required();
  collect.add_option("name", a->name, of_batch).required();
  collect.add_flag("--ordered", a->ordered, "The answers lie in the order of the requests");
  collect.add_flag("--remove", a->remove, "Remove the batch from the server when the file is there");
  collect.footer("Example:\n  doppler batch collect requests.jsonl answers.jsonl night --remove");
  collect.callback([a, worked] {
    *worked = true;
    queue_job(
        *a, "answers",
        [&](const serve::QueueOptions& queue, const serve::BatchOptions& options) {
          return serve::collect_batch(queue, options, a->remove);
        },
        "collected");
  });
}

}  // namespace doppler
