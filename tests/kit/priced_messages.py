"""Business code with Protobuf messages: classes as a compiler of .proto files makes them."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from hapax import Output, Record

ORDER_PROTO = """\
syntax = "proto3";
package shop;
message Order { int64 id = 1; int64 total = 2; }
"""


def _order() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto
    for number, name in enumerate(("id", "total"), start=1):
        message.field.add(name=name, number=number, type=field.TYPE_INT64, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


Order: Any = _order()


def price(record: Record[Order]) -> Output:
    return Output(Order(id=record.data.id, total=2 * record.data.id))
