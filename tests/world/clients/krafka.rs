//! krafka: a consumer with and without a group, and a producer, as its examples show.

mod lines;

use std::time::Duration;

use krafka::consumer::{AutoOffsetReset, Consumer, IsolationLevel};
use krafka::{Kafka, Record};
use lines::{Asked, fail, given, refused, show};

#[tokio::main]
async fn main() {
    let asked = Asked::new();
    let kafka = Kafka::builder(asked.text("bootstrap")).connect().await.unwrap();
    match asked.action.as_str() {
        "read" => read(&asked, kafka).await,
        "group" => group(&asked, kafka).await,
        _ => write(&asked, kafka).await,
    }
}

async fn read(asked: &Asked, kafka: Kafka) {
    let mut builder = kafka.consumer_without_group().auto_offset_reset(AutoOffsetReset::Earliest);
    if asked.is_committed() {
        builder = builder.isolation_level(IsolationLevel::ReadCommitted);
    }
    poll(asked, builder.build().await.unwrap(), asked.idle(), false).await;
}

async fn group(asked: &Asked, kafka: Kafka) {
    let member = kafka
        .consumer(asked.text("group"))
        .auto_offset_reset(AutoOffsetReset::Earliest)
        .isolation_level(IsolationLevel::ReadCommitted)
        .enable_auto_commit(false);
    poll(asked, member.build().await.unwrap(), Duration::from_secs(20), true).await;
}

async fn poll(asked: &Asked, consumer: Consumer, first: Duration, commits: bool) {
    consumer.subscribe([asked.text("topic")]).await.unwrap_or_else(|error| fail(error));
    let mut until = std::time::Instant::now() + first;
    while std::time::Instant::now() < until {
        let records = consumer.poll(Duration::from_millis(200)).await.unwrap_or_else(|error| fail(error));
        for one in &records {
            until = std::time::Instant::now() + asked.idle();
            let headers = one.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref()));
            let at = (one.partition, one.offset, one.timestamp);
            show(at, one.key.as_deref(), one.value.as_deref(), headers);
        }
        if commits {
            consumer.commit().await.unwrap_or_else(|error| fail(error));
        }
    }
    consumer.close().await.unwrap_or_else(|error| fail(error));
}

async fn write(asked: &Asked, kafka: Kafka) {
    let producer = kafka.producer().build().await.unwrap();
    let mut handles = Vec::new();
    for one in given() {
        let mut record = Record::new(asked.text("topic"), one.v.unwrap_or_default());
        if let Some(key) = one.k {
            record = record.key(key);
        }
        if let Some(ms) = one.t {
            record = record.timestamp(ms);
        }
        match producer.enqueue(record).await {
            Ok(handle) => handles.push(handle),
            Err(error) => refused(error),
        }
    }
    for handle in handles {
        if let Err(error) = handle.await {
            refused(error);
        }
    }
    producer.close().await.unwrap();
}
