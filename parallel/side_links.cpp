#include "parallel/side_links.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <random>
#include <utility>

namespace tandem {

using asio::ip::tcp;

namespace {

constexpr std::uint32_t kLongestFrame = 4u << 20;
constexpr auto kAcceptAgain = std::chrono::milliseconds(200);

struct Hello {
  std::uint64_t key = 0;
  std::int32_t rank = 0;
};

/// What the peer's kernel says of a process that is gone, not what a network says of a host.
bool says_gone(const asio::error_code& error) {
  return error == asio::error::eof || error == asio::error::connection_reset ||
         error == asio::error::broken_pipe || error == asio::error::connection_refused;
}

}  // namespace

SideLinks::SideLinks(asio::io_context& io, SideLinkEvents& events)
    : io_(io), events_(events), acceptor_(io, tcp::endpoint(tcp::v4(), 0)), accept_timer_(io) {
  std::random_device random;
  own_key_ = random() | std::uint64_t{random()} << 32;
}

SideChannel::Address SideLinks::address() const {
  SideChannel::Address address;
  gethostname(address.host.data(), address.host.size() - 1);
  address.port = acceptor_.local_endpoint().port();
  address.key = own_key_;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) == 0) {
    std::size_t found = 0;
    for (const ifaddrs* at = interfaces; at != nullptr && found < address.ipv4.size();
         at = at->ifa_next) {
      if (at->ifa_addr != nullptr && at->ifa_addr->sa_family == AF_INET) {
        sockaddr_in internet{};
        std::memcpy(&internet, at->ifa_addr, sizeof internet);
        const std::uint32_t ip = ntohl(internet.sin_addr.s_addr);
        if (ip >> 24 != 127) {
          address.ipv4[found++] = ip;
        }
      }
    }
    freeifaddrs(interfaces);
  }
  return address;
}

void SideLinks::open(int rank, std::span<const SideChannel::Address> all) {
  rank_ = rank;
  addresses_.assign(all.begin(), all.end());
  accept();
}

void SideLinks::accept() {
  auto link = std::make_shared<SideLink>(io_);
  acceptor_.async_accept(link->socket_, [this, link](const asio::error_code& error) {
    if (error == asio::error::operation_aborted || closed_) {
      return;
    }
    if (error) {  // no file descriptor is left, for now
      accept_timer_.expires_after(kAcceptAgain);
      accept_timer_.async_wait([this](const asio::error_code& ended) {
        if (!ended && !closed_) {
          accept();
        }
      });
      return;
    }
    link->ready_ = true;
    read(link);
    accept();
  });
}

SideLinkPtr SideLinks::connect(int rank) {
  const SideChannel::Address& to = addresses_[static_cast<std::size_t>(rank)];
  const bool same_host = to.host == addresses_[static_cast<std::size_t>(rank_)].host;
  std::vector<tcp::endpoint> endpoints;
  if (same_host) {
    endpoints.emplace_back(asio::ip::address_v4::loopback(), to.port);
  }
  for (const std::uint32_t ip : to.ipv4) {
    if (ip != 0) {
      endpoints.emplace_back(asio::ip::address_v4(ip), to.port);
    }
  }
  auto link = std::make_shared<SideLink>(io_);
  link->rank_ = rank;
  asio::async_connect(
      link->socket_, endpoints,
      [this, link, same_host](const asio::error_code& error, const tcp::endpoint&) {
        if (closed_) {
          return;
        }
        if (error) {  // it listened once: on one host a refusal says that it is gone
          end(link, same_host && error == asio::error::connection_refused);
          return;
        }
        link->ready_ = true;
        send(link, Frame::kHello, bytes_of(Hello{addresses_[0].key, rank_}));
        events_.connected(link);
        read(link);
      });
  return link;
}

void SideLinks::read(const SideLinkPtr& link) {
  asio::async_read(link->socket_, asio::buffer(&link->header_, sizeof link->header_),
                   [this, link](const asio::error_code& error, std::size_t) {
                     if (error || link->header_.bytes > kLongestFrame ||
                         (link->rank_ < 0 && link->header_.bytes != sizeof(Hello))) {
                       lost(link, error);
                     } else {
                       read_body(link);
                     }
                   });
}

void SideLinks::read_body(const SideLinkPtr& link) {
  link->body_.resize(link->header_.bytes);
  asio::async_read(link->socket_, asio::buffer(link->body_),
                   [this, link](const asio::error_code& error, std::size_t) {
                     if (error) {
                       lost(link, error);
                       return;
                     }
                     const Frame frame = link->header_.frame;
                     const std::string body = std::move(link->body_);
                     const bool known = link->rank_ >= 0;
                     if (known || accepts(link, frame, body)) {
                       read(link);  // first, so that a message that is refused is the only one
                       known ? events_.received(link, frame, body) : events_.greeted(link);
                     }
                   });
}

bool SideLinks::accepts(const SideLinkPtr& link, Frame frame, const std::string& body) {
  Hello hello;
  std::memcpy(&hello, body.data(), sizeof hello);
  if (frame != Frame::kHello || hello.key != addresses_[0].key || hello.rank < 0 ||
      hello.rank >= static_cast<int>(addresses_.size()) || hello.rank == rank_) {
    end(link, false);
    return false;
  }
  link->rank_ = hello.rank;
  return true;
}

void SideLinks::lost(const SideLinkPtr& link, const asio::error_code& error) {
  end(link, says_gone(error));
}

void SideLinks::end(const SideLinkPtr& link, bool gone) {
  if (link->broken_) {
    return;
  }
  link->broken_ = true;
  asio::error_code ignored;
  link->socket_.close(ignored);
  if (link->rank_ >= 0) {
    events_.lost(link, gone);
  }
}

void SideLinks::send(const SideLinkPtr& link, Frame frame, const std::string& body) {
  if (link == nullptr || link->broken_ || !link->ready_) {
    return;
  }
  const SideLink::Header header{static_cast<std::uint32_t>(body.size()), frame};
  link->out_.push_back(bytes_of(header) + body);
  if (!link->writing_) {
    write(link);
  }
}

void SideLinks::write(const SideLinkPtr& link) {
  link->writing_ = true;
  asio::async_write(link->socket_, asio::buffer(link->out_.front()),
                    [this, link](const asio::error_code& error, std::size_t) {
                      link->writing_ = false;
                      link->out_.pop_front();
                      if (error) {
                        lost(link, error);
                      } else if (!link->out_.empty()) {
                        write(link);
                      } else {
                        events_.sent();
                      }
                    });
}

void SideLinks::close() {
  closed_ = true;
  asio::error_code ignored;
  acceptor_.close(ignored);
  accept_timer_.cancel();
}

}  // namespace tandem
