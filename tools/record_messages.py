"""Record messages of every version, as JSON and as the bytes that Apache Kafka's own classes write.

`python -m tools.record_messages [--version 4.4.0] [--only NAME,NAME] [--seed 1]` writes tests/golden/messages.jsonl.gz:
three random messages for each schema at each version. A message's bytes are made from the class's own schema, read by
the class, and written again; its JSON is that of the class's JSON converter. With --only the messages of these names
alone are replaced, by those of a later release, say. Equal seeds and jars make equal files.

    {"message": "HeartbeatResponse", "version": 1, "json": {"throttleTimeMs": 0, "errorCode": 1}, "hex": "000000000001"}

bytes and records are base64 in the JSON (Kafka's converter has only the size of records), uuids unpadded URL-safe
base64; tagged fields at their default are left out. Nothing of the jars is kept: they come by Maven (`make tools`).
"""

import argparse
import gzip
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Final

from kafkapy.protocol.api_table import MESSAGE_MODULES
from tools.java_programs import run_java
from tools.kafka import KAFKA_VERSION, PREVIOUS_VERSION, TOOLS, kafka_libs
from tools.maven import maven_copy

GOLDEN: Final = Path(__file__).resolve().parents[1] / "tests" / "golden" / "messages.jsonl.gz"
SPECS: Final = Path(__file__).resolve().parents[1] / "protocol_specs"
SAMPLES: Final = 3
ARTIFACTS: Final = (
    "kafka-clients", "kafka-raft", "kafka-metadata", "kafka-storage", "kafka-server-common",
    "kafka-group-coordinator", "kafka-transaction-coordinator", "kafka-share-coordinator",
)  # fmt: skip
"""The jars with generated messages; for a version that `make tools` does not fetch."""

JAVA: Final = """
import java.io.*; import java.lang.reflect.Method; import java.nio.ByteBuffer; import java.util.*;
import com.fasterxml.jackson.databind.*; import com.fasterxml.jackson.databind.node.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor; import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil; import org.apache.kafka.common.protocol.Readable;
import org.apache.kafka.common.protocol.types.*;
import org.apache.kafka.common.record.internal.MemoryRecords;

public class RecordMessages {
  static Random dice;
  static final String[] WORDS =
      {"", "a", "x".repeat(63), "x".repeat(127), "x".repeat(200), "\\u65e5\\u672c\\u8a9e-\\u03ad"};

  static long number(long low, long high) {
    switch (dice.nextInt(6)) {
      case 0: return 0;
      case 1: return 1;
      case 2: return low < 0 ? -1 : high;
      case 3: return low;
      case 4: return high;
      default: return low + Math.floorMod(dice.nextLong(), high - low > 0 ? high - low : Long.MAX_VALUE);
    }
  }

  static byte[] bytes() {
    byte[] made = new byte[new int[] {0, 1, 16, 130}[dice.nextInt(4)]];
    dice.nextBytes(made);
    return made;
  }

  static Object value(Type type) throws Exception {
    if (type.isNullable() && dice.nextInt(4) == 0) return null;
    if (type instanceof Schema) return struct((Schema) type);
    if (type.isArray()) {
      Object[] made = new Object[dice.nextInt(4)];
      for (int index = 0; index < made.length; index++) made[index] = value(type.arrayElementType().get());
      return made;
    }
    if (type instanceof TaggedFields) {
      NavigableMap<Integer, Object> made = new TreeMap<>();
      for (Map.Entry<Integer, Field> field : ((TaggedFields) type).fields().entrySet())
        if (dice.nextBoolean()) made.put(field.getKey(), value(field.getValue().type));
      return made;
    }
    switch (((Type.DocumentedType) type).typeName()) {
      case "BOOLEAN": return dice.nextBoolean();
      case "INT8": return (byte) number(Byte.MIN_VALUE, Byte.MAX_VALUE);
      case "INT16": return (short) number(Short.MIN_VALUE, Short.MAX_VALUE);
      case "UINT16": return (int) number(0, 65535);
      case "INT32": return (int) number(Integer.MIN_VALUE, Integer.MAX_VALUE);
      case "UINT32": return number(0, 4294967295L);
      case "INT64": return number(Long.MIN_VALUE, Long.MAX_VALUE);
      case "FLOAT64": return new double[] {0, -0.5, 1e300, 12.25}[dice.nextInt(4)];
      case "UUID": return new Uuid(dice.nextLong(), dice.nextLong());
      case "STRING": case "COMPACT_STRING": case "NULLABLE_STRING": case "COMPACT_NULLABLE_STRING":
        return dice.nextInt(3) == 0 ? "topic-" + dice.nextInt(1000) : WORDS[dice.nextInt(WORDS.length)];
      case "BYTES": case "COMPACT_BYTES": case "NULLABLE_BYTES": case "COMPACT_NULLABLE_BYTES":
        return ByteBuffer.wrap(bytes());
      case "RECORDS": case "COMPACT_RECORDS": case "NULLABLE_RECORDS": case "COMPACT_NULLABLE_RECORDS":
        return MemoryRecords.readableRecords(ByteBuffer.wrap(bytes()));
      default: throw new IllegalStateException("no value for the type " + type);
    }
  }

  static Struct struct(Schema schema) throws Exception {
    Struct made = new Struct(schema);
    for (BoundField field : schema.fields()) made.set(field, value(field.def.type));
    return made;
  }

  /** Put the bytes of records where the converter has their size. */
  static void withRecords(Object message, JsonNode node) throws Exception {
    if (!(node instanceof ObjectNode)) return;
    ObjectNode object = (ObjectNode) node;
    List<String> names = new ArrayList<>();
    object.fieldNames().forEachRemaining(names::add);
    for (String name : names) {
      if (name.endsWith("SizeInBytes") && !has(message, name)) {
        String records = name.substring(0, name.length() - "SizeInBytes".length());
        MemoryRecords found = (MemoryRecords) message.getClass().getMethod(records).invoke(message);
        object.remove(name);
        if (found == null) { object.putNull(records); continue; }
        byte[] content = new byte[found.sizeInBytes()];
        found.buffer().duplicate().get(content);
        object.put(records, content);
        continue;
      }
      if (!has(message, name)) continue;
      Object found = message.getClass().getMethod(name).invoke(message);
      JsonNode inner = object.get(name);
      if (found instanceof Message) withRecords(found, inner);
      if (found instanceof Iterable && inner.isArray()) {
        Iterator<JsonNode> nodes = inner.elements();
        for (Object each : (Iterable<?>) found) withRecords(each, nodes.next());
      }
    }
  }

  static boolean has(Object message, String name) {
    try { message.getClass().getMethod(name); return true; } catch (NoSuchMethodException error) { return false; }
  }

  public static void main(String[] arguments) throws Exception {
    ObjectMapper mapper = new ObjectMapper();
    PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] asked = line.split(" ");
      Class<?> type = Class.forName(asked[1]);
      Schema[] schemas = (Schema[]) type.getField("SCHEMAS").get(null);
      Method convert = Class.forName(asked[1] + "JsonConverter").getMethod("write", type, short.class, boolean.class);
      for (short version = type.getField("LOWEST_SUPPORTED_VERSION").getShort(null);
           version <= type.getField("HIGHEST_SUPPORTED_VERSION").getShort(null); version++) {
        dice = new Random(Objects.hash(Long.parseLong(arguments[0]), asked[0], version));
        for (int sample = 0; sample < Integer.parseInt(arguments[1]); sample++) {
          Struct made = struct(schemas[version]);
          ByteBuffer buffer = ByteBuffer.allocate(made.sizeOf());
          made.writeTo(buffer);
          buffer.flip();
          Message message = (Message) type.getConstructor(Readable.class, short.class)
              .newInstance(new ByteBufferAccessor(buffer), version);
          ObjectNode row = mapper.createObjectNode();
          row.put("message", asked[0]).put("version", version);
          JsonNode json = (JsonNode) convert.invoke(null, message, version, false);
          withRecords(message, json);
          row.set("json", json);
          ByteBuffer written = MessageUtil.toByteBufferAccessor(message, version).buffer();
          byte[] content = new byte[written.remaining()];
          written.get(content);
          row.put("hex", HexFormat.of().formatHex(content));
          out.println(mapper.writeValueAsString(row));
        }
      }
    }
    out.flush();
  }
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.record_messages")
    parser.add_argument("--version", default=KAFKA_VERSION)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.only:
        names = options.only.split(",")
        kept = [row for row in read_golden() if row["message"] not in names]
        write_golden(kept + record(libs_of(options.version), names, options.seed))
        return
    write_golden(record(libs_of(options.version), sorted(live_messages()), options.seed))


def libs_of(version: str) -> Path:
    """Return the directory with the jars of a version of Apache Kafka; fetch them if they are not there."""
    if version in (KAFKA_VERSION, PREVIOUS_VERSION):
        return kafka_libs(version)
    libs = TOOLS / f"kafka-messages-{version}"
    if not libs.exists():
        maven_copy([("org.apache.kafka", artifact, version) for artifact in ARTIFACTS], libs)
    return libs


def live_messages() -> set[str]:
    """Return the names of all messages but those of versions that Apache Kafka has removed."""
    return MESSAGE_MODULES.keys() - {path.stem for path in (SPECS / "legacy").glob("*.json")}


def record(libs: Path, names: list[str], seed: int) -> list[dict[str, object]]:
    """Return the rows of these messages. Exits if the jars lack one."""
    classes = generated_classes(libs)
    if lacking := [name for name in names if name not in classes and f"{name}Data" not in classes]:
        raise SystemExit(f"The jars in {libs} have no {', '.join(lacking)}: another --version may")
    asked = [f"{name} {classes.get(name + 'Data') or classes[name]}" for name in names]
    return [json.loads(line) for line in run_java(JAVA, asked, str(seed), str(SAMPLES), libs=libs)]


def generated_classes(libs: Path) -> dict[str, str]:
    """Return the full name of each class that has a JSON converter, by its own name."""
    found: dict[str, str] = {}
    for jar in sorted(libs.glob("kafka-*.jar")):
        with zipfile.ZipFile(jar) as entries:
            for entry in entries.namelist():
                if generated := re.fullmatch(r"(org/apache/kafka/.*/(\w+))JsonConverter\.class", entry):
                    found[generated[2]] = generated[1].replace("/", ".")
    return found


def read_golden() -> list[dict[str, object]]:
    return [json.loads(line) for line in gzip.decompress(GOLDEN.read_bytes()).splitlines()]


def write_golden(rows: list[dict[str, object]]) -> None:
    """Write the rows by message and version, those of one in their order."""
    rows.sort(key=lambda row: (row["message"], row["version"]))
    data = io.BytesIO()
    with gzip.GzipFile("", mode="wb", fileobj=data, compresslevel=9, mtime=0) as out:
        out.writelines(json.dumps(row).encode() + b"\n" for row in rows)
    GOLDEN.write_bytes(data.getvalue())


if __name__ == "__main__":
    main()
