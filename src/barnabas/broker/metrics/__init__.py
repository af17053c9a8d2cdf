"""What a node tells of itself: Kafka's metrics under names that Prometheus's JMX exporter makes of them, and more.

`node_metrics.NodeMetrics` is the way in; one file per concern has its families and says where their values are. Values
are looked up when somebody asks: only what happens too often, or leaves no trace, is counted when it happens.
"""
