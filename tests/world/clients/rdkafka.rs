//! rdkafka: StreamConsumer and FutureProducer, with the defaults of the librdkafka in its crate.

mod lines;

use std::time::Duration;

use lines::{Asked, fail, given, refused, show};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{CommitMode, Consumer, StreamConsumer};
use rdkafka::message::{Headers, Message};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use rdkafka::util::Timeout;
use rdkafka::{Offset, TopicPartitionList};
use tokio::time::timeout;

#[tokio::main]
async fn main() {
    let asked = Asked::new();
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", asked.text("bootstrap"));
    match asked.action.as_str() {
        "read" => read(&asked, config).await,
        "group" => group(&asked, config).await,
        _ => write(&asked, config).await,
    }
}

async fn read(asked: &Asked, mut config: ClientConfig) {
    if asked.is_committed() {
        config.set("isolation.level", "read_committed");
    }
    let consumer: StreamConsumer = config.set("group.id", "none").create().unwrap();
    let topic = asked.text("topic");
    let metadata = consumer.fetch_metadata(Some(topic), Duration::from_secs(30)).unwrap();
    let mut places = TopicPartitionList::new();
    for one in metadata.topics()[0].partitions() {
        places.add_partition_offset(topic, one.id(), Offset::Beginning).unwrap();
    }
    consumer.assign(&places).unwrap();
    drain(asked, &consumer, asked.idle()).await;
}

async fn group(asked: &Asked, mut config: ClientConfig) {
    config.set("group.id", asked.text("group")).set("auto.offset.reset", "earliest");
    let consumer: StreamConsumer = config.create().unwrap();
    consumer.subscribe(&[asked.text("topic")]).unwrap();
    drain(asked, &consumer, Duration::from_secs(20)).await;
    let _ = consumer.commit_consumer_state(CommitMode::Sync); // nothing to commit is an error
}

async fn drain(asked: &Asked, consumer: &StreamConsumer, first: Duration) {
    let mut patience = first;
    while let Ok(received) = timeout(patience, consumer.recv()).await {
        let one = received.unwrap_or_else(|error| fail(error));
        patience = asked.idle();
        let at = (one.partition(), one.offset(), one.timestamp().to_millis().unwrap_or(-1));
        let headers = one.headers().into_iter().flat_map(|all| all.iter());
        show(at, one.key(), one.payload(), headers.map(|header| (header.key, header.value)));
    }
}

async fn write(asked: &Asked, mut config: ClientConfig) {
    if asked.text("variant") == "murmur2" {
        config.set("partitioner", "murmur2_random");
    }
    let producer: FutureProducer = config.create().unwrap();
    let mut sent = Vec::new();
    for one in given() {
        let mut record: FutureRecord<[u8], [u8]> = FutureRecord::to(asked.text("topic"));
        record.key = one.k.as_deref();
        record.payload = one.v.as_deref();
        record.timestamp = one.t;
        match producer.send_result(record) {
            Ok(delivery) => sent.push(delivery),
            Err((error, _)) => refused(error),
        }
    }
    for delivery in sent {
        if let Ok(Err((error, _))) = delivery.await {
            refused(error);
        }
    }
    producer.flush(Timeout::After(Duration::from_secs(60))).unwrap();
}
