/* The part of librdkafka's public interface that is used here, and how it is bound.
 *
 * Nothing is linked: a process may hold several copies of librdkafka, and only the very one whose
 * client called us may be called back. Its functions are looked up by name when it loads this file
 * as a plugin (client.c). Types and numbers are those of librdkafka 2.x, which keeps its ABI; the
 * versions that were tested are known to hapax.kafka.native.
 */
#ifndef HAPAX_LIBRDKAFKA_H
#define HAPAX_LIBRDKAFKA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;

typedef int rd_kafka_resp_err_t; /* an enum there */
typedef int rd_kafka_timestamp_type_t;

#define RD_KAFKA_RESP_ERR_NO_ERROR 0
#define RD_KAFKA_RESP_ERR__PARTITION_EOF (-191)
#define RD_KAFKA_RESP_ERR__FAIL (-196)
#define RD_KAFKA_RESP_ERR__QUEUE_FULL (-184)

#define RD_KAFKA_PARTITION_UA ((int32_t)-1)
#define RD_KAFKA_MSG_F_COPY 0x2

/* Tags of the arguments of rd_kafka_producev. */
enum { VTYPE_END = 0, VTYPE_RKT = 2, VTYPE_PARTITION = 3, VTYPE_VALUE = 4, VTYPE_KEY = 5, VTYPE_MSGFLAGS = 7,
       VTYPE_TIMESTAMP = 8, VTYPE_HEADERS = 10 };

typedef struct rd_kafka_message_s {
  rd_kafka_resp_err_t err;
  rd_kafka_topic_t *rkt;
  int32_t partition;
  void *payload;
  size_t len;
  void *key;
  size_t key_len;
  int64_t offset;
  void *_private;
} rd_kafka_message_t;

typedef void (*error_cb_f)(rd_kafka_t *, int, const char *, void *);
typedef rd_kafka_resp_err_t (*on_new_f)(rd_kafka_t *, const rd_kafka_conf_t *, void *, char *, size_t);
typedef rd_kafka_resp_err_t (*on_destroy_f)(rd_kafka_t *, void *);
typedef rd_kafka_resp_err_t (*on_acknowledgement_f)(rd_kafka_t *, rd_kafka_message_t *, void *);
typedef rd_kafka_resp_err_t (*on_request_sent_f)(rd_kafka_t *, int, const char *, int32_t, int16_t, int16_t, int32_t,
                                                 size_t, void *);
typedef rd_kafka_resp_err_t (*on_response_received_f)(rd_kafka_t *, int, const char *, int32_t, int16_t, int16_t,
                                                      int32_t, size_t, int64_t, rd_kafka_resp_err_t, void *);
typedef rd_kafka_resp_err_t (*on_broker_state_change_f)(rd_kafka_t *, int32_t, const char *, const char *, int,
                                                        const char *, void *);

/* F(name, result, arguments): every function that is called. */
#define LIBRDKAFKA_FUNCTIONS(F)                                                                                    \
  F(rd_kafka_version, int, (void))                                                                                 \
  F(rd_kafka_version_str, const char *, (void))                                                                    \
  F(rd_kafka_queue_new, rd_kafka_queue_t *, (rd_kafka_t *))                                                        \
  F(rd_kafka_queue_destroy, void, (rd_kafka_queue_t *))                                                            \
  F(rd_kafka_queue_get_partition, rd_kafka_queue_t *, (rd_kafka_t *, const char *, int32_t))                       \
  F(rd_kafka_queue_forward, void, (rd_kafka_queue_t *, rd_kafka_queue_t *))                                        \
  F(rd_kafka_queue_length, size_t, (rd_kafka_queue_t *))                                                           \
  F(rd_kafka_consume_batch_queue, ssize_t, (rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t))               \
  F(rd_kafka_message_destroy, void, (rd_kafka_message_t *))                                                        \
  F(rd_kafka_message_timestamp, int64_t, (const rd_kafka_message_t *, rd_kafka_timestamp_type_t *))                \
  F(rd_kafka_message_leader_epoch, int32_t, (const rd_kafka_message_t *))                                          \
  F(rd_kafka_message_errstr, const char *, (const rd_kafka_message_t *))                                           \
  F(rd_kafka_message_headers, rd_kafka_resp_err_t, (const rd_kafka_message_t *, rd_kafka_headers_t **))            \
  F(rd_kafka_message_detach_headers, rd_kafka_resp_err_t, (rd_kafka_message_t *, rd_kafka_headers_t **))           \
  F(rd_kafka_headers_new, rd_kafka_headers_t *, (size_t))                                                          \
  F(rd_kafka_headers_destroy, void, (rd_kafka_headers_t *))                                                        \
  F(rd_kafka_headers_copy, rd_kafka_headers_t *, (const rd_kafka_headers_t *))                                     \
  F(rd_kafka_header_get_all, rd_kafka_resp_err_t,                                                                  \
    (const rd_kafka_headers_t *, size_t, const char **, const void **, size_t *))                                  \
  F(rd_kafka_header_get, rd_kafka_resp_err_t,                                                                      \
    (const rd_kafka_headers_t *, size_t, const char *, const void **, size_t *))                                   \
  F(rd_kafka_header_add, rd_kafka_resp_err_t,                                                                      \
    (rd_kafka_headers_t *, const char *, ssize_t, const void *, ssize_t))                                          \
  F(rd_kafka_header_remove, rd_kafka_resp_err_t, (rd_kafka_headers_t *, const char *))                             \
  F(rd_kafka_producev, rd_kafka_resp_err_t, (rd_kafka_t *, ...))                                                   \
  F(rd_kafka_topic_new, rd_kafka_topic_t *, (rd_kafka_t *, const char *, rd_kafka_topic_conf_t *))                 \
  F(rd_kafka_topic_destroy, void, (rd_kafka_topic_t *))                                                            \
  F(rd_kafka_topic_name, const char *, (const rd_kafka_topic_t *))                                                 \
  F(rd_kafka_err2str, const char *, (rd_kafka_resp_err_t))                                                         \
  F(rd_kafka_conf_get, int, (const rd_kafka_conf_t *, const char *, char *, size_t *))                              \
  F(rd_kafka_conf_set_error_cb, void, (rd_kafka_conf_t *, error_cb_f))                                             \
  F(rd_kafka_conf_interceptor_add_on_new, rd_kafka_resp_err_t,                                                     \
    (rd_kafka_conf_t *, const char *, on_new_f, void *))                                                           \
  F(rd_kafka_interceptor_add_on_destroy, rd_kafka_resp_err_t, (rd_kafka_t *, const char *, on_destroy_f, void *))  \
  F(rd_kafka_interceptor_add_on_acknowledgement, rd_kafka_resp_err_t,                                              \
    (rd_kafka_t *, const char *, on_acknowledgement_f, void *))                                                    \
  F(rd_kafka_interceptor_add_on_request_sent, rd_kafka_resp_err_t,                                                 \
    (rd_kafka_t *, const char *, on_request_sent_f, void *))                                                       \
  F(rd_kafka_interceptor_add_on_response_received, rd_kafka_resp_err_t,                                            \
    (rd_kafka_t *, const char *, on_response_received_f, void *))                                                  \
  F(rd_kafka_interceptor_add_on_broker_state_change, rd_kafka_resp_err_t,                                          \
    (rd_kafka_t *, const char *, on_broker_state_change_f, void *))

#define HAPAX_DECLARE(name, result, arguments) extern result(*p_##name) arguments;
LIBRDKAFKA_FUNCTIONS(HAPAX_DECLARE)
#undef HAPAX_DECLARE

#endif
