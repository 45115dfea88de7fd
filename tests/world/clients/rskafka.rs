//! rskafka: a stream and a client a partition; it has no groups, and the caller names partitions.

mod lines;

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::StreamExt;
use lines::{Asked, fail, given, refused, show};
use rskafka::client::consumer::{StartOffset, StreamConsumerBuilder};
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;
use tokio::time::timeout;

#[tokio::main]
async fn main() {
    let asked = Asked::new();
    let client = ClientBuilder::new(vec![asked.text("bootstrap").to_owned()]).build().await.unwrap();
    match asked.action.as_str() {
        "read" => read(&asked, client).await,
        _ => write(&asked, client).await,
    }
}

async fn of(client: &Client, asked: &Asked, partition: i32) -> PartitionClient {
    let topic = asked.text("topic");
    client.partition_client(topic, partition, UnknownTopicHandling::Retry).await.unwrap()
}

async fn read(asked: &Asked, client: Client) {
    let topics = client.list_topics().await.unwrap();
    let topic = topics.into_iter().find(|one| one.name == asked.text("topic")).unwrap();
    for partition in topic.partitions {
        let one = Arc::new(of(&client, asked, partition).await);
        let mut stream = StreamConsumerBuilder::new(one, StartOffset::Earliest).build();
        while let Ok(Some(next)) = timeout(asked.idle(), stream.next()).await {
            match next {
                Ok((found, _high_watermark)) => {
                    let Record { key, value, headers, timestamp } = found.record;
                    let at = (partition, found.offset, timestamp.timestamp_millis());
                    let headers = headers.iter().map(|(name, v)| (name.as_str(), Some(v.as_slice())));
                    show(at, key.as_deref(), value.as_deref(), headers);
                }
                Err(error) => fail(error),
            }
        }
    }
}

async fn write(asked: &Asked, client: Client) {
    let partition = of(&client, asked, 0).await;
    let time = |ms: Option<i64>| ms.and_then(DateTime::from_timestamp_millis).unwrap_or(Utc::now());
    let records = given().into_iter().map(|one| Record {
        key: one.k,
        value: one.v,
        headers: BTreeMap::new(),
        timestamp: time(one.t),
    });
    if let Err(error) = partition.produce(records.collect(), Compression::default()).await {
        refused(error);
    }
}
