"""Values of records as typed columns: JSON and Avro, decoded where they are read, with a place for the bad ones.

    decoding = DecodingOptions.parse(options)        # on the driver; None if values stay bytes
    schema = decoding.spark_schema(source_schema())
    letters = letter_settings(client)                # if decoding.dead_letter_topic is given
    decoder = Decoder(decoding, letters)             # on a worker, one per task
    for batch in batches:
        yield decoder.apply(batch)

| module | |
|---|---|
| `options` | what the user asked for |
| `ddl`, `arrow_types` | Spark's schema language without a session, and its types in Arrow |
| `json_values`, `json_records` | JSON a block at a time, and record by record: the second says what is right |
| `avro_values`, `avro_schemas` | Avro, and how its schemas become columns |
| `avro_bounds` | values that would be too much for a worker |
| `registry`, `framing` | schemas by their id |
| `bad_records`, `dead_letters` | what becomes of a value that cannot be decoded |
"""

from barnabas.spark.decoding.dead_letters import letter_settings
from barnabas.spark.decoding.decoder import Decoder
from barnabas.spark.decoding.options import DecodingOptions

__all__ = ["Decoder", "DecodingOptions", "letter_settings"]
