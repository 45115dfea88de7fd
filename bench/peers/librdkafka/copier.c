/* The C library under the binding, without Python: records go through, two headers are added.
 *
 * It loads the very library that the binding has brought (--library), so versions are equal, and
 * declares the few public functions that it calls (rdkafka.h of librdkafka 2): no package with
 * headers is needed.
 *
 *     gcc -O2 -o copier copier.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDS_MAX = 50000, CALL_TIMEOUT_MS = 10000 };
enum { CONF_OK = 0, PRODUCER = 0, CONSUMER = 1, QUEUE_FULL = -184, COPY = 2, ANY_PARTITION = -1 };
enum { V_END = 0, V_RKT = 2, V_VALUE = 4, V_KEY = 5, V_FLAGS = 7, V_HEADERS = 10 };

typedef struct {
    int err;
    void *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private;
} message_t;

static void *library;
static volatile sig_atomic_t stopping;

#define CALL(result, name, ...) ((result(*)(__VA_ARGS__))function(name))

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void *function(const char *name) {
    void *found = dlsym(library, name);
    if (!found)
        fail(name, "this librdkafka does not have it");
    return found;
}

static void stop(int number) {
    (void)number;
    stopping = 1;
}

static const char *argument(int count, char **given, const char *name) {
    size_t length = strlen(name);
    for (int at = 1; at < count; at++)
        if (!strncmp(given[at], "--", 2) && !strncmp(given[at] + 2, name, length) &&
            given[at][2 + length] == '=')
            return given[at] + 3 + length;
    fail(name, "this argument is missing");
    return NULL;
}

static void *client(int kind, const char *const *settings) {
    char why[512];
    void *conf = CALL(void *, "rd_kafka_conf_new", void)();
    for (; *settings; settings += 2)
        if (CALL(int, "rd_kafka_conf_set", void *, const char *, const char *, char *, size_t)(
                conf, settings[0], settings[1], why, sizeof why) != CONF_OK)
            fail(settings[0], why);
    void *made = CALL(void *, "rd_kafka_new", int, void *, char *, size_t)(kind, conf, why,
                                                                          sizeof why);
    if (!made)
        fail("rd_kafka_new", why);
    return made;
}

/* Functions of transactions return an error object, or NULL. */
static void checked(const char *what, void *error) {
    if (error)
        fail(what, CALL(const char *, "rd_kafka_error_string", void *)(error));
}

typedef int (*produce_t)(void *, ...);
typedef int (*header_add_t)(void *, const char *, ssize_t, const void *, ssize_t);
typedef int (*header_get_t)(void *, size_t, const char **, const void **, size_t *);

static produce_t producev;
static header_add_t header_add;
static header_get_t header_get;
static int (*detach)(message_t *, void **);
static int (*plain)(void *, int32_t, int, void *, size_t, const void *, size_t, void *);
static int (*poll_)(void *, int);
static int (*last_error)(void);

static void send_record(void *producer, void *target, const char *source, message_t *record,
                        int with_headers) {
    int code;
    if (!with_headers) {
        while (plain(target, ANY_PARTITION, COPY, record->payload, record->len, record->key,
                     record->key_len, NULL) == -1) {
            if (last_error() != QUEUE_FULL)
                fail("produce", "refused");
            poll_(producer, 100);
        }
        return;
    }
    void *headers = NULL;
    const char *name;
    const void *id;
    size_t length;
    if (detach(record, &headers) || header_get(headers, 0, &name, &id, &length))
        fail("headers", "an input record has none");
    char where[300];
    int written = snprintf(where, sizeof where, "%s/%d/%lld", source, (int)record->partition,
                           (long long)record->offset);
    char copy[256];
    if (length > sizeof copy)
        fail("headers", "the id is too long");
    memcpy(copy, id, length); /* adding may move what the pointer points to */
    header_add(headers, "hapax-id", -1, copy, (ssize_t)length);
    header_add(headers, "hapax-source", -1, where, written);
    while ((code = producev(producer, V_RKT, target, V_VALUE, record->payload, record->len, V_KEY,
                            record->key, record->key_len, V_FLAGS, COPY, V_HEADERS, headers,
                            V_END))) {
        if (code != QUEUE_FULL)
            fail("producev", "refused");
        poll_(producer, 100);
    }
}

int main(int count, char **given) {
    library = dlopen(argument(count, given, "library"), RTLD_NOW);
    if (!library)
        fail("librdkafka", dlerror());
    const char *servers = argument(count, given, "servers");
    const char *group = argument(count, given, "group");
    const char *source = argument(count, given, "source");
    long wanted = atol(argument(count, given, "records"));
    int with_headers = atoi(argument(count, given, "headers"));
    int interval_ms = atoi(argument(count, given, "interval-ms"));
    const char *reading[] = {"bootstrap.servers", servers, "socket.nagle.disable", "true",
        "group.id", group, "group.instance.id", group, "session.timeout.ms", "15000",
        "partition.assignment.strategy", "cooperative-sticky", "auto.offset.reset", "earliest",
        "enable.auto.commit", "false", "enable.auto.offset.store", "false", "isolation.level",
        "read_committed", "fetch.queue.backoff.ms", "10", "fetch.wait.max.ms", "100", NULL};
    const char *writing[] = {"bootstrap.servers", servers, "socket.nagle.disable", "true",
        "transactional.id", group, "transaction.timeout.ms", "10000", "retry.backoff.ms", "5",
        "linger.ms", "1", "batch.size", "1048576", "queue.buffering.max.messages", "1000000",
        "queue.buffering.max.kbytes", "1048576", "partitioner", "murmur2_random", NULL};
    void *consumer = client(CONSUMER, reading);
    void *producer = client(PRODUCER, writing);
    producev = (produce_t)function("rd_kafka_producev");
    header_add = (header_add_t)function("rd_kafka_header_add");
    header_get = (header_get_t)function("rd_kafka_header_get_all");
    detach = (int (*)(message_t *, void **))function("rd_kafka_message_detach_headers");
    plain = (int (*)(void *, int32_t, int, void *, size_t, const void *, size_t, void *))function(
        "rd_kafka_produce");
    poll_ = (int (*)(void *, int))function("rd_kafka_poll");
    last_error = (int (*)(void))function("rd_kafka_last_error");
    int64_t (*consume)(void *, int, message_t **, size_t) =
        (int64_t(*)(void *, int, message_t **, size_t))function("rd_kafka_consume_batch_queue");
    void (*release)(message_t *) = (void (*)(message_t *))function("rd_kafka_message_destroy");
    void *(*begin)(void *) = (void *(*)(void *))function("rd_kafka_begin_transaction");
    void *(*commit)(void *, int) = (void *(*)(void *, int))function("rd_kafka_commit_transaction");

    signal(SIGTERM, stop);
    checked("init", CALL(void *, "rd_kafka_init_transactions", void *, int)(producer,
                                                                            CALL_TIMEOUT_MS));
    void *target = CALL(void *, "rd_kafka_topic_new", void *, const char *, void *)(
        producer, argument(count, given, "target"), NULL);
    CALL(int, "rd_kafka_poll_set_consumer", void *)(consumer);
    void *topics = CALL(void *, "rd_kafka_topic_partition_list_new", int)(1);
    CALL(void *, "rd_kafka_topic_partition_list_add", void *, const char *, int32_t)(topics, source,
                                                                                     -1);
    if (CALL(int, "rd_kafka_subscribe", void *, void *)(consumer, topics))
        fail("subscribe", "refused");
    void *queue = CALL(void *, "rd_kafka_queue_get_consumer", void *)(consumer);
    static message_t *records[RECORDS_MAX];
    long done = 0;
    while (!stopping && (!wanted || done < wanted)) {
        int64_t found = interval_ms ? consume(queue, interval_ms, records, RECORDS_MAX)
                                    : consume(queue, 100, records, 1);
        if (found > 0 && !interval_ms)
            found += consume(queue, 0, records + 1, RECORDS_MAX - 1);
        poll_(producer, 0);
        if (found <= 0)
            continue;
        checked("begin", begin(producer));
        void *offsets = CALL(void *, "rd_kafka_topic_partition_list_new", int)(4);
        int64_t next[4096] = {0};
        for (int64_t at = 0; at < found; at++) {
            message_t *record = records[at];
            if (record->err || record->partition >= 4096)
                fail("consume", "an error in place of a record");
            next[record->partition] = record->offset + 1;
            send_record(producer, target, source, record, with_headers);
        }
        for (int32_t partition = 0; partition < 4096; partition++)
            if (next[partition]) {
                CALL(void *, "rd_kafka_topic_partition_list_add", void *, const char *, int32_t)(
                    offsets, source, partition);
                CALL(int, "rd_kafka_topic_partition_list_set_offset", void *, const char *, int32_t,
                     int64_t)(offsets, source, partition, next[partition]);
            }
        void *member = CALL(void *, "rd_kafka_consumer_group_metadata", void *)(consumer);
        checked("offsets", CALL(void *, "rd_kafka_send_offsets_to_transaction", void *, void *,
                                void *, int)(producer, offsets, member, CALL_TIMEOUT_MS));
        checked("commit", commit(producer, CALL_TIMEOUT_MS));
        CALL(void, "rd_kafka_consumer_group_metadata_destroy", void *)(member);
        CALL(void, "rd_kafka_topic_partition_list_destroy", void *)(offsets);
        for (int64_t at = 0; at < found; at++)
            release(records[at]);
        done += found;
    }
    CALL(void, "rd_kafka_queue_destroy", void *)(queue);
    CALL(int, "rd_kafka_consumer_close", void *)(consumer);
    CALL(void, "rd_kafka_destroy", void *)(consumer);
    CALL(void, "rd_kafka_topic_destroy", void *)(target);
    CALL(void, "rd_kafka_destroy", void *)(producer);
    return 0;
}
