// Runs a simulated core as a program: events on standard input, answers on standard output, frames as close together as
// allowed.
//
// Compiled for one core: CORE is the class that Verilator generates, BUS the width of its bus in bits. If events are
// available, as from a file, frames follow each other without pause; before the program waits for input, it has
// answered every event read.
//
// The format is that of crates/devices/device/src/pipe.rs. The program does not interpret frames.
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
#define HEADER(core) TEXT(core.h)
#include HEADER(CORE)
#include "verilated.h"

namespace {

using Frame = std::vector<uint8_t>;

constexpr unsigned kBytes = BUS / 8;
// Words between the starts of two frames: the shortest Ethernet frame.
constexpr unsigned kApart = 64 / kBytes;
// Cycles after which every frame in flight has left.
constexpr unsigned kDrain = 40;
// Cycles from the first word in to the first word out; any other number is a fault.
constexpr uint64_t kLatency = BUS == 64 ? 11 : 5;
// Tag of frames that never ended. Output with this tag is discarded.
constexpr uint32_t kNobodys = 0xffffffff;

// A tag is reused only long after the frame that had it is gone.
uint32_t tag_of(uint64_t number) { return number % kNobodys; }

// The first byte of a word is in its upper bits.
void put_byte(uint64_t &word, unsigned at, uint8_t byte) {
    unsigned shift = 56 - 8 * at;
    word = (word & ~(0xffull << shift)) | static_cast<uint64_t>(byte) << shift;
}
uint8_t get_byte(const uint64_t &word, unsigned at) { return word >> (56 - 8 * at); }

template <size_t N>
void put_byte(VlWide<N> &word, unsigned at, uint8_t byte) {
    unsigned from = 4 * N - 1 - at, shift = 8 * (from % 4);
    word[from / 4] = (word[from / 4] & ~(0xffu << shift)) | static_cast<uint32_t>(byte) << shift;
}
template <size_t N>
uint8_t get_byte(const VlWide<N> &word, unsigned at) {
    unsigned from = 4 * N - 1 - at;
    return word[from / 4] >> (8 * (from % 4));
}

class Bench {
  public:
    Bench() { reset(0, {}); }

    // Power-cycles the core while a frame arrives or is in flight, in a different cycle each time; the frame must have
    // no effect. Frames that begin before the cells are cleared are ignored to their end.
    void reset(unsigned port, const Frame &frame) {
        drain();
        spoil(port, frame);
        unsigned words = words_of(frame);
        unsigned cut = words == 0 ? 0 : resets_++ % (words + kLatency + 2);
        for (unsigned at = 0; at < cut; at++) put_nobodys(port, frame, at);
        under_way_[0] = under_way_[1] = false;
        core_.rst = 1;
        idle();
        core_.rst = 0;
        open_[0].clear();
        open_[1].clear();
        is_silent_ = true;
        for (unsigned at = 0; !core_.ready || (words != 0 && at % words != 0); at++) put_nobodys(port, frame, at);
        drain();
        is_silent_ = false;
    }

    void send(uint32_t tag, unsigned port, const Frame &frame) {
        unsigned words = 0;
        begun_[tag] = cycle_;
        for (size_t at = 0; at < frame.size(); at += kBytes, words++) put(tag, port, frame, at);
        core_.s_valid = 0;
        for (; words < kApart; words++) idle();
    }

    void drain() {
        for (unsigned i = 0; i < kDrain; i++) idle();
    }

    // Returns the frames sent for an event: first on the network's port, then on the owner's.
    std::vector<std::pair<unsigned, Frame>> take(uint32_t tag) {
        std::vector<std::pair<unsigned, Frame>> sent;
        for (unsigned port = 0; port < 2; port++) {
            auto found = done_.find({tag, port});
            if (found == done_.end()) continue;
            sent.emplace_back(port, found->second);
            done_.erase(found);
        }
        begun_.erase(tag);
        return sent;
    }

  private:
    // Sends the frame with a gap, which must not leave as a frame, and followed by enough zeros that its length wraps,
    // which may only be forwarded. A reset follows and erases their effects.
    void spoil(unsigned port, const Frame &frame) {
        spoiled_ = frame;
        if (frame.size() > kBytes) {
            size_t gap = kBytes * (1 + resets_ % ((frame.size() - 1) / kBytes));
            for (size_t at = 0; at < frame.size(); at += kBytes) {
                for (unsigned i = 0; at == gap && i <= resets_ % 5; i++) idle();
                put(kNobodys, port, frame, at);
            }
            drain();
        }
        spoiled_.resize(frame.empty() ? 0 : frame.size() + (1 << 16));
        for (size_t at = 0; at < spoiled_.size(); at += kBytes) put(kNobodys, port, spoiled_, at);
        drain();
        spoiled_.clear();
    }

    // Sends one word of a frame that is repeated endlessly.
    void put_nobodys(unsigned port, const Frame &frame, unsigned at) {
        unsigned words = words_of(frame);
        size_t from = words == 0 ? 0 : kBytes * (at % words);
        if (from >= frame.size()) return idle();
        put(kNobodys, port, frame, from);
    }

    // Includes idle words up to the start of the next frame.
    static unsigned words_of(const Frame &frame) {
        unsigned words = (frame.size() + kBytes - 1) / kBytes;
        return words != 0 && words < kApart ? kApart : words;
    }

    void put(uint32_t tag, unsigned port, const Frame &frame, size_t at) {
        unsigned bytes = frame.size() - at < kBytes ? frame.size() - at : kBytes;
        for (unsigned i = 0; i < kBytes; i++) put_byte(core_.s_data, i, i < bytes ? frame[at + i] : 0x5a);
        core_.s_valid = 1;
        core_.s_last = at + bytes == frame.size();
        core_.s_bytes = bytes;
        core_.s_port = port;
        core_.s_tag = tag;
        step();
    }

    void idle() {
        core_.s_valid = 0;
        step();
    }

    void step() {
        core_.clk = 0;
        core_.eval();
        core_.clk = 1;
        core_.eval();
        cycle_++;
        for (unsigned port = 0; port < 2; port++) watch(port);
    }

    // Checks the contract of the bus: a frame leaves without gaps, each word after the same number of cycles, and all
    // words but the last are full.
    void watch(unsigned port) {
        if (!(core_.m_valid >> port & 1)) {
            if (under_way_[port]) fail("a frame has a gap");
            return;
        }
        if (is_silent_) fail("something left that nobody sent, or that came before the core was ready");
        uint32_t tag = core_.m_tag;
        if (core_.m_bytes == 0 || core_.m_bytes > kBytes) fail("a word has no such bytes");
        if (!core_.m_last && core_.m_bytes != kBytes) fail("a word is not full, and not the last one");
        if (under_way_[port] && tag != tag_[port]) fail("a frame begins within another");
        Frame &frame = open_[port];
        if (!under_way_[port] && tag != kNobodys && cycle_ - begun_[tag] != kLatency) fail("a frame left too early or too late");
        under_way_[port] = !core_.m_last;
        tag_[port] = tag;
        const auto &word = port ? core_.m_data1 : core_.m_data0;
        for (unsigned i = 0; i < core_.m_bytes; i++) frame.push_back(get_byte(word, i));
        if (!core_.m_last) return;
        bool is_handed_on = frame.size() >> 16 != 0 && frame == spoiled_;
        if (!spoiled_.empty() && !core_.m_abort && !is_handed_on) fail("what is no frame left as one");
        if (tag != kNobodys && !core_.m_abort) done_[{tag, port}] = frame;
        frame.clear();
    }

    [[noreturn]] void fail(const char *what) {
        fprintf(stderr, "cycle %llu, frame %u: %s\n", static_cast<unsigned long long>(cycle_), core_.m_tag, what);
        exit(1);
    }

    CORE core_;
    uint64_t cycle_ = 0;
    unsigned resets_ = 0;
    std::map<uint32_t, uint64_t> begun_;
    Frame open_[2];
    // For each port: true while a frame is leaving.
    bool under_way_[2] = {};
    uint32_t tag_[2] = {};
    // Malformed frame that is being sent.
    Frame spoiled_;
    // Set after a reset, while nothing may leave.
    bool is_silent_ = false;
    std::map<std::pair<uint32_t, unsigned>, Frame> done_;
};

// Standard input. Calls `Settle` before it waits for a word.
template <typename Settle>
class Input {
  public:
    explicit Input(Settle settle) : settle_(settle) {}

    // Returns false at the end of the input.
    bool read_event(unsigned &port, Frame &frame) {
        uint8_t word[2];
        size_t got = take(word, 2);
        if (got == 0) return false;
        port = word[0] >> 4;
        size_t length = (word[0] & 15) << 8 | word[1];
        frame.resize(length);
        if (got != 2 || port > 1 || take(frame.data(), length) != length) {
            fprintf(stderr, "the input is no stream of events\n");
            exit(1);
        }
        return true;
    }

  private:
    // Returns the number of bytes read, which is smaller only at the end of the input.
    size_t take(uint8_t *to, size_t count) {
        size_t got = 0;
        while (got < count) {
            if (from_ == to_ && !fill()) break;
            to[got++] = buffer_[from_++];
        }
        return got;
    }

    bool fill() {
        pollfd ready = {STDIN_FILENO, POLLIN, 0};
        if (poll(&ready, 1, 0) == 0) settle_();
        ssize_t got;
        do got = read(STDIN_FILENO, buffer_, sizeof buffer_);
        while (got < 0 && errno == EINTR);
        from_ = 0;
        to_ = got > 0 ? got : 0;
        return to_ > 0;
    }

    Settle settle_;
    uint8_t buffer_[1 << 16];
    size_t from_ = 0, to_ = 0;
};

void write_answer(const std::vector<std::pair<unsigned, Frame>> &sent) {
    for (const auto &[port, frame] : sent) {
        uint8_t word[2] = {static_cast<uint8_t>(port << 4 | frame.size() >> 8), static_cast<uint8_t>(frame.size())};
        fwrite(word, 1, 2, stdout);
        fwrite(frame.data(), 1, frame.size(), stdout);
    }
    uint8_t end[2] = {0, 0};
    fwrite(end, 1, 2, stdout);
}

}  // namespace

int main(int argc, char **argv) {
    // The program's name is the last word of its help text.
    const char *core = TEXT(CORE);
    if (argc > 1 && strncmp(argv[argc - 1], core + 1, strlen(argv[argc - 1])) != 0) {
        fprintf(stderr, "this core is %s\n", core + 1);
        return 1;
    }
    Bench bench;
    unsigned port = 0;
    Frame frame, last;
    unsigned last_port = 0;
    // Answers are written once their frames have certainly left: after enough later frames, or when no more input is
    // available.
    constexpr uint64_t kBehind = 64;
    uint64_t next = 0, written = 0;
    auto write_to = [&](uint64_t to) {
        for (; written < to; written++) write_answer(bench.take(tag_of(written)));
    };
    auto settle = [&] {
        bench.drain();
        write_to(next);
        // The reader has closed the pipe.
        if (fflush(stdout) != 0) exit(1);
    };
    Input input(settle);
    while (input.read_event(port, frame)) {
        if (frame.empty()) {
            bench.reset(last_port, last);
        } else {
            bench.send(tag_of(next), port, frame);
            last_port = port;
            last = frame;
        }
        next++;
        if (next > kBehind) write_to(next - kBehind);
    }
    settle();
    return 0;
}
