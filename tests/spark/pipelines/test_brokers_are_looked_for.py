"""Whether brokers can be reached is asked before Spark is started; what is wrong with their names is no crash."""

from __future__ import annotations

import socket

import pytest

from barnabas.spark.pipelines.failures import PipelineError
from barnabas.spark.pipelines.reaching import check_brokers

SETTING = "spark.shop.bootstrap.servers"


def test_somebody_listening_at_one_of_the_addresses_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_brokers({SETTING: f"kafka..local:9092, PLAINTEXT://127.0.0.1:{server.getsockname()[1]}"})


@pytest.mark.parametrize("host", ["kafka..local", "k" * 70])
def test_a_name_that_no_host_can_have_is_one_where_nobody_answers(host: str) -> None:
    with pytest.raises(PipelineError, match=rf"no broker answers at .*:9092 \({SETTING}\)"):
        check_brokers({SETTING: f"{host}:9092"})


@pytest.mark.parametrize("port", ["", ":", ":9²", ":65536", ":" + "9" * 5000])
def test_what_is_no_address_is_passed_over(port: str) -> None:
    check_brokers({SETTING: f"kafka..local{port}"})
