/* Loads a broker with requests that were encoded beforehand, or is a broker that answers at once.
 *
 *   load exchange HOST PORT SECONDS FILE   a connection for each frame in FILE, one request under way on each
 *   load fan-out HOST PORT FILE            one producer, many readers that each read all of it: see struct plan
 *   load serve ANSWER_BYTES                says its port, and answers each frame with so many bytes; what it is
 *                                          asked per second is the most that this program can show of a broker
 *
 * Tells one line of JSON. Numbers in FILE are of 4 bytes, big-endian, as in Kafka's protocol.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 256, READ_BYTES = 1 << 16, IN_FLIGHT = 5, COMMIT_MS = 1000 };

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static double now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double own_cpu_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static uint32_t get32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

static int64_t get64(const uint8_t *at) { return (int64_t)((uint64_t)get32(at) << 32 | get32(at + 4)); }

static void put64(uint8_t *at, int64_t value) {
    for (int index = 7; index >= 0; index--, value >>= 8) at[index] = (uint8_t)value;
}

/* What was read of a file, and how far one is in it. */
struct input {
    uint8_t *bytes;
    size_t size, at;
};

static struct input read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) fail("%s: %s", path, strerror(errno));
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    struct input input = {malloc((size_t)size), (size_t)size, 0};
    if (fread(input.bytes, 1, input.size, file) != input.size) fail("%s cannot be read", path);
    fclose(file);
    return input;
}

static uint32_t next_number(struct input *input) {
    if (input->at + 4 > input->size) fail("the plan ends too early");
    input->at += 4;
    return get32(input->bytes + input->at - 4);
}

/* A request with its size in front. */
struct frame {
    uint8_t *bytes;
    size_t size;
};

static struct frame next_frame(struct input *input) {
    struct frame frame = {NULL, next_number(input)};
    if (input->at + frame.size > input->size) fail("the plan ends within a frame");
    frame.bytes = input->bytes + input->at;
    input->at += frame.size;
    return frame;
}

/* A connection, and what of the next answer is there. */
struct peer {
    int descriptor;
    uint8_t *answer;
    size_t room, there;
    double sent_s;
};

static struct peer connect_to(const char *host, const char *port, int poller, uint64_t key) {
    struct peer peer = {socket(AF_INET, SOCK_STREAM, 0), malloc(READ_BYTES), READ_BYTES, 0, 0};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    inet_pton(AF_INET, host, &address.sin_addr);
    if (connect(peer.descriptor, (struct sockaddr *)&address, sizeof address)) fail("connect: %s", strerror(errno));
    int yes = 1;
    setsockopt(peer.descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = key};
    epoll_ctl(poller, EPOLL_CTL_ADD, peer.descriptor, &event);
    return peer;
}

static void send_frame(struct peer *peer, struct frame frame) {
    for (size_t sent = 0; sent < frame.size;) {
        ssize_t count = send(peer->descriptor, frame.bytes + sent, frame.size - sent, MSG_NOSIGNAL);
        if (count < 0) fail("send: %s", strerror(errno));
        sent += (size_t)count;
    }
}

/* Read what has come; whether a whole answer is there, whose size then stands at its front. */
static int receive(struct peer *peer) {
    ssize_t count = recv(peer->descriptor, peer->answer + peer->there, peer->room - peer->there, 0);
    if (count <= 0) fail("the broker has closed the connection");
    peer->there += (size_t)count;
    if (peer->there < 4) return 0;
    size_t whole = 4 + (size_t)get32(peer->answer);
    if (whole > peer->room) {
        peer->room = whole;
        peer->answer = realloc(peer->answer, whole);
    }
    return peer->there >= whole;
}

/* Take the first answer away; there may be the beginning of a next one. */
static void drop_answer(struct peer *peer) {
    size_t whole = 4 + (size_t)get32(peer->answer);
    memmove(peer->answer, peer->answer + whole, peer->there - whole);
    peer->there -= whole;
}

static int by_size(const void *one, const void *other) {
    double first = *(const double *)one, second = *(const double *)other;
    return (first > second) - (first < second);
}

/* exchange */

static void exchange(const char *host, const char *port, double seconds, const char *path) {
    struct input input = read_file(path);
    size_t count = next_number(&input);
    int poller = epoll_create1(0);
    struct peer *peers = calloc(count, sizeof *peers);
    struct frame *frames = calloc(count, sizeof *frames);
    for (size_t index = 0; index < count; index++) {
        frames[index] = next_frame(&input);
        peers[index] = connect_to(host, port, poller, index);
    }
    size_t done = 0, room = 1 << 16;
    double *times = malloc(room * sizeof *times), began_s = now_s(), cpu_s = own_cpu_s(), moment_s = began_s;
    for (size_t index = 0; index < count; index++) {
        peers[index].sent_s = now_s();
        send_frame(&peers[index], frames[index]);
    }
    struct epoll_event events[EVENTS];
    while (moment_s < began_s + seconds) {
        int ready = epoll_wait(poller, events, EVENTS, 1000);
        for (int number = 0; number < ready; number++) {
            struct peer *peer = &peers[events[number].data.u64];
            if (!receive(peer)) continue;
            drop_answer(peer);
            moment_s = now_s();
            if (done == room) times = realloc(times, (room *= 2) * sizeof *times);
            times[done++] = moment_s - peer->sent_s;
            peer->sent_s = moment_s;
            send_frame(peer, frames[events[number].data.u64]);
        }
        if (ready == 0) fail("no answer within a second");
    }
    double took_s = moment_s - began_s;
    cpu_s = own_cpu_s() - cpu_s;
    qsort(times, done, sizeof *times, by_size);
    printf("{\"requests\": %zu, \"seconds\": %.6f, \"load_cpu_s\": %.6f, \"p50_s\": %.9f, \"p99_s\": %.9f}\n", done,
           took_s, cpu_s, times[done / 2], times[done * 99 / 100]);
}

/* fan-out */

/* In FILE, in this order. A place is where in a frame an offset of 8 bytes stands. */
struct plan {
    uint32_t readers, partitions, batches;
    int64_t *first, *last;         /* of each partition: where readers begin, and where they have read all */
    struct frame *produce;         /* of each partition */
    uint32_t *fetch_at;            /* of each partition: its place in the fetch */
    uint32_t *commit_at;           /* of each partition: its place in a commit */
    struct frame *fetch, *commit;  /* of each reader */
};

static struct plan read_plan(const char *path) {
    struct input input = read_file(path);
    struct plan plan = {.readers = next_number(&input), .partitions = next_number(&input)};
    plan.batches = next_number(&input);
    size_t count = plan.partitions;
    plan.first = calloc(count, sizeof *plan.first), plan.last = calloc(count, sizeof *plan.last);
    plan.produce = calloc(count, sizeof *plan.produce);
    plan.fetch_at = calloc(count, sizeof *plan.fetch_at), plan.commit_at = calloc(count, sizeof *plan.commit_at);
    for (size_t index = 0; index < count; index++) {
        plan.first[index] = next_number(&input), plan.last[index] = next_number(&input);
        plan.fetch_at[index] = next_number(&input), plan.commit_at[index] = next_number(&input);
        plan.produce[index] = next_frame(&input);
    }
    plan.fetch = calloc(plan.readers, sizeof *plan.fetch), plan.commit = calloc(plan.readers, sizeof *plan.commit);
    for (size_t index = 0; index < plan.readers; index++)
        plan.fetch[index] = next_frame(&input), plan.commit[index] = next_frame(&input);
    return plan;
}

struct reader {
    struct peer peer;
    int64_t *offsets;
    double committed_s;
    int is_committing, is_done;
};

/* The offset after the last whole batch of some records. */
static int64_t end_of(const uint8_t *records, size_t size, int64_t offset) {
    for (size_t at = 0; at + 61 <= size;) {
        size_t whole = 12 + (size_t)get32(records + at + 8);
        if (at + whole > size) break;
        offset = get64(records + at) + (int32_t)get32(records + at + 23) + 1;
        at += whole;
    }
    return offset;
}

/* A Fetch answer of version 11, of one topic. */
static void take_records(struct reader *reader) {
    const uint8_t *at = reader->peer.answer + 4 + 4 + 4;
    if (at[0] || at[1]) fail("Fetch was answered with error %d", at[0] << 8 | at[1]);
    at += 2 + 4;
    if (get32(at) == 0) return;
    at += 4;
    at += 2 + (at[0] << 8 | at[1]);
    uint32_t count = get32(at);
    at += 4;
    while (count--) {
        uint32_t index = get32(at);
        if (at[4] || at[5]) fail("partition %u was answered with error %d", index, at[4] << 8 | at[5]);
        at += 4 + 2 + 8 + 8 + 8;
        int32_t aborted = (int32_t)get32(at);
        at += 4 + (aborted > 0 ? aborted * 16 : 0) + 4;
        int32_t size = (int32_t)get32(at);
        at += 4;
        if (size > 0) {
            reader->offsets[index] = end_of(at, (size_t)size, reader->offsets[index]);
            at += size;
        }
    }
}

static void ask_on(struct reader *reader, const struct plan *plan, size_t number) {
    double moment_s = now_s();
    reader->is_done = 1;
    for (size_t index = 0; index < plan->partitions; index++)
        reader->is_done &= reader->offsets[index] >= plan->last[index];
    if (reader->is_done) return;
    reader->is_committing = moment_s >= reader->committed_s + COMMIT_MS / 1e3;
    if (reader->is_committing) reader->committed_s = moment_s;
    struct frame frame = reader->is_committing ? plan->commit[number] : plan->fetch[number];
    const uint32_t *places = reader->is_committing ? plan->commit_at : plan->fetch_at;
    for (size_t index = 0; index < plan->partitions; index++)
        put64(frame.bytes + places[index], reader->offsets[index]);
    send_frame(&reader->peer, frame);
}

static void fan_out(const char *host, const char *port, const char *path) {
    struct plan plan = read_plan(path);
    int poller = epoll_create1(0);
    struct reader *readers = calloc(plan.readers, sizeof *readers);
    struct peer producer = connect_to(host, port, poller, plan.readers);
    for (size_t number = 0; number < plan.readers; number++) {
        readers[number].peer = connect_to(host, port, poller, number);
        readers[number].offsets = calloc(plan.partitions, sizeof *readers->offsets);
        memcpy(readers[number].offsets, plan.first, plan.partitions * sizeof *plan.first);
        /* Not all of them in one moment. */
        readers[number].committed_s = now_s() - COMMIT_MS / 1e3 * (double)number / plan.readers;
    }
    double began_s = now_s(), cpu_s = own_cpu_s(), produced_s = 0;
    for (size_t number = 0; number < plan.readers; number++) ask_on(&readers[number], &plan, number);
    uint32_t sent = 0, acknowledged = 0, done = 0, fetches = 0;
    while (sent < IN_FLIGHT && sent < plan.batches) send_frame(&producer, plan.produce[sent++ % plan.partitions]);
    struct epoll_event events[EVENTS];
    while (done < plan.readers) {
        int ready = epoll_wait(poller, events, EVENTS, 30000);
        if (ready == 0) fail("nothing has come for 30 s; %u of %u readers have all", done, plan.readers);
        for (int index = 0; index < ready; index++) {
            size_t number = events[index].data.u64;
            if (number == plan.readers) {
                if (!receive(&producer)) continue;
                while (producer.there >= 4 && producer.there >= 4 + (size_t)get32(producer.answer)) {
                    drop_answer(&producer);
                    if (++acknowledged == plan.batches) produced_s = now_s() - began_s;
                    if (sent < plan.batches) send_frame(&producer, plan.produce[sent++ % plan.partitions]);
                }
                continue;
            }
            struct reader *reader = &readers[number];
            if (!receive(&reader->peer)) continue;
            if (!reader->is_committing) take_records(reader), fetches++;
            drop_answer(&reader->peer);
            ask_on(reader, &plan, number);
            done += reader->is_done;
        }
    }
    printf("{\"seconds\": %.6f, \"produced_s\": %.6f, \"fetches\": %u, \"load_cpu_s\": %.6f}\n", now_s() - began_s,
           produced_s, fetches, own_cpu_s() - cpu_s);
}

/* serve */

static void serve(size_t answer_bytes) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), poller = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 1024)) fail("%s", strerror(errno));
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    struct frame answer = {calloc(1, 4 + answer_bytes), 4 + answer_bytes};
    uint32_t front = htonl((uint32_t)answer_bytes);
    memcpy(answer.bytes, &front, 4);
    struct peer *peers = calloc(1 << 16, sizeof *peers);
    struct epoll_event events[EVENTS], event = {.events = EPOLLIN, .data.u64 = (uint64_t)listener};
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int ready = epoll_wait(poller, events, EVENTS, -1);
        for (int index = 0; index < ready; index++) {
            int descriptor = (int)events[index].data.u64;
            if (descriptor == listener) {
                descriptor = accept(listener, NULL, NULL);
                int yes = 1;
                setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
                peers[descriptor] = (struct peer){descriptor, malloc(READ_BYTES), READ_BYTES, 0, 0};
                event.data.u64 = (uint64_t)descriptor;
                epoll_ctl(poller, EPOLL_CTL_ADD, descriptor, &event);
                continue;
            }
            struct peer *peer = &peers[descriptor];
            ssize_t count = recv(descriptor, peer->answer + peer->there, peer->room - peer->there, 0);
            if (count <= 0) {
                free(peer->answer);
                close(descriptor);
                continue;
            }
            peer->there += (size_t)count;
            if (peer->there < 4) continue;
            size_t whole = 4 + (size_t)get32(peer->answer);
            if (whole > peer->room) peer->room = whole, peer->answer = realloc(peer->answer, whole);
            if (peer->there < whole) continue;
            drop_answer(peer);
            send_frame(peer, answer);
        }
    }
}

int main(int count, char **given) {
    if (count == 6 && !strcmp(given[1], "exchange"))
        exchange(given[2], given[3], atof(given[4]), given[5]);
    else if (count == 5 && !strcmp(given[1], "fan-out"))
        fan_out(given[2], given[3], given[4]);
    else if (count == 3 && !strcmp(given[1], "serve"))
        serve((size_t)atol(given[2]));
    else
        fail("see the beginning of load.c");
}
