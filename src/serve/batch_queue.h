// A batch over a queue: `submit` stores a file's requests in NATS JetStream, any number of `work` answer them, and
// `collect` writes the answers to a file. Whoever is killed, and a server that is started again, cost time and no
// answer: a request that its worker does not acknowledge goes to another one, and every custom_id has one line in the
// end.
//
// A batch NAME is two streams. doppler-NAME has the requests (doppler.NAME.request) in the order of the file, so that
// the number of a message says which; its description says of which file. doppler-NAME-out has
//   doppler.NAME.out.answer    lines of answers
//   doppler.NAME.out.tried.N   request N, which was handed out often, begins to run alone
//   doppler.NAME.out.dead      requests that are given up: ten times their worker died with nothing else running
#pragma once

#include "cluster/job_queue.h"
#include "serve/batch.h"

namespace doppler::serve {

struct QueueOptions {
  JobQueue::Options server;
  std::string name;
  double ack_wait_s = 30;  // after which a request of a silent worker is another's
};

// Where it was begun before it goes on; BatchCounts::answered are the requests that were stored.
BatchCounts submit_batch(const std::filesystem::path& input, const QueueOptions& queue,
                         const std::function<void(const BatchCounts&)>& on_progress);

// Until all requests are answered by somebody; waits for a batch that is not there yet. Of `options` the engine, the
// models and the callbacks.
BatchCounts work_on_batch(const QueueOptions& queue, const BatchOptions& options);

// Until all answers are there. Of `options` the files, the order and the callbacks. With `remove` the streams go, too.
BatchCounts collect_batch(const QueueOptions& queue, const BatchOptions& options, bool remove);

}  // namespace doppler::serve
