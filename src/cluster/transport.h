// How the processes of one model speak to each other: messages of bytes between ranks, in order between any two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace doppler {

using Message = std::vector<std::byte>;

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Returns at once; the message goes out meanwhile.
  virtual void send(int to, Message message) = 0;
  // The next message of a rank, however long it takes. Fails, or ends the process, where a rank is gone.
  virtual Message receive(int from) = 0;
};

}  // namespace doppler
