"""SQL files are understood by Spark alone; what is shown of them comes from their shape."""

from __future__ import annotations

from barnabas.spark.pipelines.graph import SINK, TABLE, TEMPORARY, VIEW, Dataset, Flow, Graph, sql_graph

TEXT = """-- CREATE MATERIALIZED VIEW not_this AS SELECT 1
CREATE STREAMING TABLE clicks;

CREATE FLOW from_topic AS INSERT INTO clicks BY NAME
SELECT * FROM STREAM clicks_topic WHERE note <> 'FROM nowhere' /* JOIN never */;

create or refresh materialized view `page_views` USING delta
COMMENT 'Views; of pages'
AS WITH recent AS (SELECT * FROM clicks)
SELECT page, count(*) FROM recent JOIN shop.users ON true JOIN shop.users GROUP BY page;

CREATE TEMPORARY VIEW timed AS SELECT * FROM STREAM(clicks) WATERMARK at DELAY OF INTERVAL 5 MINUTES;
CREATE STREAMING TABLE copy AS SELECT * FROM STREAM clicks;
"""


def test_datasets_flows_and_what_they_read() -> None:
    graph = Graph()
    sql_graph(TEXT, "t/all.sql", graph)
    assert list(graph.datasets.values()) == [
        Dataset("clicks", TABLE, "t/all.sql:2"),
        Dataset("page_views", VIEW, "t/all.sql:7", "delta"),
        Dataset("timed", TEMPORARY, "t/all.sql:12"),
        Dataset("copy", TABLE, "t/all.sql:13"),
    ]
    assert list(graph.flows.values()) == [
        Flow("from_topic", "clicks", "t/all.sql:4", ("clicks_topic",)),
        Flow("page_views", "page_views", "t/all.sql:7", ("clicks", "shop.users")),
        Flow("timed", "timed", "t/all.sql:12", ("clicks",)),
        Flow("copy", "copy", "t/all.sql:13", ("clicks",)),
    ]
    assert [flow.name for flow in graph.flows_into("clicks")] == ["from_topic"]


def test_only_tables_are_stored() -> None:
    kinds = {kind: Dataset("x", kind, "").is_stored for kind in (TABLE, VIEW, TEMPORARY, SINK)}
    assert kinds == {TABLE: True, VIEW: True, TEMPORARY: False, SINK: False}
