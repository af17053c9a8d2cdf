"""SQL files are understood by Spark alone; what is shown of them comes from their shape."""

from __future__ import annotations

from barnabas.spark.pipelines.graph import PERSISTED, SINK, TABLE, TEMPORARY, VIEW, Dataset, Flow, Graph, sql_graph

TEXT = """-- CREATE MATERIALIZED VIEW not_this AS SELECT 1
CREATE STREAMING TABLE clicks;

CREATE FLOW from_topic AS INSERT INTO clicks BY NAME
SELECT * FROM STREAM clicks_topic WHERE note <> 'FROM nowhere' /* JOIN never */;

create materialized view `page_views` USING delta
COMMENT 'Views; of pages' TBLPROPERTIES ("by" = "FROM; a tool")
AS WITH recent AS (SELECT * FROM clicks)
SELECT page, count(*) FROM recent JOIN shop.users ON true JOIN shop.users GROUP BY page;

CREATE TEMPORARY VIEW timed AS SELECT * FROM STREAM(clicks) WATERMARK at DELAY OF INTERVAL 5 MINUTES;
CREATE STREAMING TABLE copy AS SELECT * FROM STREAM clicks;
CREATE STREAMING TABLE latest;
CREATE OR REPLACE TEMP VIEW changes AS SELECT * FROM STREAM copy;
CREATE FLOW kept_up AS AUTO CDC INTO latest FROM STREAM changes KEYS (user) SEQUENCE BY at;
CREATE VIEW users AS SELECT * FROM latest;
"""


def test_datasets_flows_and_what_they_read() -> None:
    graph = Graph()
    sql_graph(TEXT, "t/all.sql", graph)
    assert list(graph.datasets.values()) == [
        Dataset("clicks", TABLE, "t/all.sql:2"),
        Dataset("page_views", VIEW, "t/all.sql:7", "delta"),
        Dataset("timed", TEMPORARY, "t/all.sql:12"),
        Dataset("copy", TABLE, "t/all.sql:13"),
        Dataset("latest", TABLE, "t/all.sql:14"),
        Dataset("changes", TEMPORARY, "t/all.sql:15"),
        Dataset("users", PERSISTED, "t/all.sql:17"),
    ]
    assert list(graph.flows.values()) == [
        Flow("from_topic", "clicks", "t/all.sql:4", ("clicks_topic",)),
        Flow("page_views", "page_views", "t/all.sql:7", ("clicks", "shop.users")),
        Flow("timed", "timed", "t/all.sql:12", ("clicks",)),
        Flow("copy", "copy", "t/all.sql:13", ("clicks",)),
        Flow("changes", "changes", "t/all.sql:15", ("copy",)),
        Flow("kept_up", "latest", "t/all.sql:16", ("changes",)),
        Flow("users", "users", "t/all.sql:17", ("latest",)),
    ]
    assert [flow.name for flow in graph.flows_into("clicks")] == ["from_topic"]


def test_only_tables_are_stored() -> None:
    kinds = {kind: Dataset("x", kind, "").is_stored for kind in (TABLE, VIEW, TEMPORARY, PERSISTED, SINK)}
    assert kinds == {TABLE: True, VIEW: True, TEMPORARY: False, PERSISTED: False, SINK: False}
