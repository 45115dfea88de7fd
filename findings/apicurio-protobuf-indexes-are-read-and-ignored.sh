#!/usr/bin/env bash
# The Protobuf serdes of Apicurio Registry 3.1.7 (Maven Central) have settings for the form of
# Confluent's, send-indexes and read-indexes, where the path to the message stands after the id.
# The deserializer reads that path and throws it away. Without a class that is named for what it
# reads it then knows no message and fails on the serializer's own values; with one it parses every
# message as that class, also where the path says that it is another: here a Second as a First.
# The serializer refuses a message that is declared inside another one, unless validation is off.
# Expected: the path chooses the message, as in Confluent's serdes.
# Seen:
#   Second: 02 02 0a 01 78, read without a class: NullPointerException, as First: id "x"
#   Second.B: IllegalStateException, without validation: 04 02 00 0a 01 78
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat > pom.xml <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>io.apicurio</groupId><artifactId>apicurio-registry-protobuf-serde-kafka</artifactId>
    <version>3.1.7</version>
  </dependency></dependencies>
</project>
END
goal=org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies
mvn -q -B "$goal" -DoutputDirectory=jars -DincludeScope=runtime
cat > Seen.java <<'END'
package io.apicurio.registry.serde.protobuf;  // readData is protected

import com.google.protobuf.DescriptorProtos.DescriptorProto;
import com.google.protobuf.DescriptorProtos.FieldDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import com.google.protobuf.StringValue;
import io.apicurio.registry.resolver.ParsedSchemaImpl;
import io.apicurio.registry.serde.config.SerdeConfig;
import io.apicurio.registry.utils.protobuf.schema.FileDescriptorUtils;
import io.apicurio.registry.utils.protobuf.schema.ProtobufSchema;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;

public class Seen {
    static final Map<String, Object> INDEXES = Map.of(
        "apicurio.registry.url", "http://127.0.0.1:1/apis/registry/v3",  // is never asked
        "apicurio.registry.serde.send-type-ref", false, "apicurio.registry.serde.send-indexes", true,
        "apicurio.registry.serde.read-type-ref", false, "apicurio.registry.serde.read-indexes", true);

    static DescriptorProto.Builder message(String name) {
        return DescriptorProto.newBuilder().setName(name).addField(FieldDescriptorProto.newBuilder()
            .setName("id").setNumber(1).setType(FieldDescriptorProto.Type.TYPE_STRING)
            .setLabel(FieldDescriptorProto.Label.LABEL_OPTIONAL));
    }

    static SerdeConfig with(String name, Object value) {
        var made = new HashMap<>(INDEXES);
        made.put(name, value);
        return new SerdeConfig(made);
    }

    static String written(ParsedSchemaImpl<ProtobufSchema> schema, Descriptor kind, boolean valid) {
        var serializer = new ProtobufSerializer<Message>();
        serializer.configure(with("apicurio.registry.serde.validation-enabled", valid), false);
        var out = new ByteArrayOutputStream();
        var made = DynamicMessage.newBuilder(kind).setField(kind.findFieldByName("id"), "x").build();
        try {
            serializer.serializeData(schema, (Message) made, out);
            return HexFormat.ofDelimiter(" ").formatHex(out.toByteArray());
        } catch (Exception error) {
            return error.getClass().getSimpleName();
        }
    }

    static String read(ParsedSchemaImpl<ProtobufSchema> schema, String bytes, SerdeConfig config) {
        var deserializer = new ProtobufDeserializer<Message>();
        deserializer.configure(config, false);
        byte[] content = HexFormat.ofDelimiter(" ").parseHex(bytes);
        try {
            var found = deserializer.readData(schema, ByteBuffer.wrap(content), 0, content.length);
            return found instanceof StringValue first ? '"' + first.getValue() + '"' : found.toString();
        } catch (Exception error) {
            return error.getClass().getSimpleName();
        }
    }

    public static void main(String[] words) throws Exception {
        var file = FileDescriptor.buildFrom(FileDescriptorProto.newBuilder()
            .setName("world.proto").setPackage("world").setSyntax("proto3")
            .addMessageType(message("First"))
            .addMessageType(message("Second").addNestedType(message("B"))).build(), new FileDescriptor[0]);
        var schema = new ParsedSchemaImpl<ProtobufSchema>().setParsedSchema(
            new ProtobufSchema(file, FileDescriptorUtils.fileDescriptorToProtoFile(file.toProto())));
        var second = file.findMessageTypeByName("Second");
        String bytes = written(schema, second, true);
        // StringValue stands for a class generated of First: its field 1 is a text, too.
        var first = with("apicurio.registry.deserializer.value.return-class", StringValue.class.getName());
        System.out.println("Second: " + bytes + ", read without a class: "
            + read(schema, bytes, new SerdeConfig(INDEXES)) + ", as First: id " + read(schema, bytes, first));
        var nested = second.findNestedTypeByName("B");
        System.out.println("Second.B: " + written(schema, nested, true)
            + ", without validation: " + written(schema, nested, false));
    }
}
END
javac -cp 'jars/*' -d classes Seen.java
java -cp 'classes:jars/*' io.apicurio.registry.serde.protobuf.Seen 2>/dev/null | tee seen
cmp seen - <<'END'
Second: 02 02 0a 01 78, read without a class: NullPointerException, as First: id "x"
Second.B: IllegalStateException, without validation: 04 02 00 0a 01 78
END
