// The connections of the side channel: framed messages over TCP between a thread of each rank. Who
// connects says hello with the job's key; what is not of this job is closed. Knows nothing of hubs
// and reports. Includes Asio: for the .cpp files of the side channel alone.
#pragma once

#include <asio.hpp>

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/side_channel.h"

namespace tandem {

enum class Frame : std::uint8_t { kHello, kAsk, kStatus, kAlarm, kOver, kBye };

/// A connection to another rank, held by whoever reads from it or writes to it.
class SideLink {
 public:
  explicit SideLink(asio::io_context& io) : socket_(io) {}

  /// Of the peer; -1 until it has said hello.
  int rank() const { return rank_; }
  /// Whether something is still to be sent.
  bool writing() const { return writing_ && !broken_; }

 private:
  friend class SideLinks;

  struct Header {
    std::uint32_t bytes = 0;
    Frame frame = Frame::kBye;
  };

  asio::ip::tcp::socket socket_;
  int rank_ = -1;
  bool ready_ = false;  ///< connected
  bool broken_ = false;
  bool writing_ = false;
  Header header_;
  std::string body_;
  std::deque<std::string> out_;
};
using SideLinkPtr = std::shared_ptr<SideLink>;

/// Told what becomes of the connections, on the thread that runs the io_context.
class SideLinkEvents {
 public:
  virtual ~SideLinkEvents() = default;
  /// A rank has connected to this one.
  virtual void greeted(const SideLinkPtr& link) = 0;
  /// This rank has connected to another.
  virtual void connected(const SideLinkPtr& link) = 0;
  virtual void received(const SideLinkPtr& link, Frame frame, const std::string& body) = 0;
  /// The connection has ended or was never made. `gone`: as its kernel says, the process has ended;
  /// otherwise a network lets nothing through.
  virtual void lost(const SideLinkPtr& link, bool gone) = 0;
  /// Nothing is left to be sent on a link.
  virtual void sent() = 0;
};

class SideLinks {
 public:
  /// Listens on a port of the system's choice. Both arguments outlive it.
  SideLinks(asio::io_context& io, SideLinkEvents& events);

  /// Where this rank listens, with a key of its own.
  SideChannel::Address address() const;
  /// From here on others may connect. `all`: of every rank in order; before the io_context runs.
  void open(int rank, std::span<const SideChannel::Address> all);
  SideLinkPtr connect(int rank);
  /// A link that is nullptr, broken or not yet connected sends nothing.
  void send(const SideLinkPtr& link, Frame frame, const std::string& body);
  /// Nobody may connect any more.
  void close();

 private:
  void accept();
  void read(const SideLinkPtr& link);
  void read_body(const SideLinkPtr& link);
  bool accepts(const SideLinkPtr& link, Frame frame, const std::string& body);
  void write(const SideLinkPtr& link);
  void lost(const SideLinkPtr& link, const asio::error_code& error);
  void end(const SideLinkPtr& link, bool gone);

  asio::io_context& io_;
  SideLinkEvents& events_;
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer accept_timer_;
  std::uint64_t own_key_;
  int rank_ = 0;
  std::vector<SideChannel::Address> addresses_;
  bool closed_ = false;
};

/// The bytes of a trivially copyable value.
template <typename T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace tandem
