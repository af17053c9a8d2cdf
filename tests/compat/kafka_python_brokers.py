"""What kafka-python's tests need where they start a broker by themselves, with TLS, SASL and an authorizer: a folder
that looks like an unpacked Kafka to them, whose scripts are our tools, and templates of the files that they fill in.

Templates and the class that holds a process are not in its source distribution; these are our own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

#: The settings of a node. Names in braces are attributes of the suite's `KafkaFixture`, some with lines of their own.
_PROPERTIES: Final = """
process.roles=broker,controller
node.id={broker_id}
listeners={transport}://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners={transport}://{host}:{port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,{transport}:{transport}
inter.broker.listener.name={transport}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers={controller_bootstrap_host}:{controller_port}
log.dirs={tmp_dir}/data
num.partitions={partitions}
default.replication.factor={replicas}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable={auto_create_topic}
listener.name.sasl_plaintext.plain.sasl.jaas.config={jaas_config}
listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config={jaas_config}
listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config={jaas_config}
{sasl_config}
{ssl_config}
{acl_config}
"""

_COMMAND_CONFIG: Final = """
security.protocol={transport}
sasl.mechanism={sasl_mechanism}
sasl.jaas.config={jaas_config}
"""

_RESOURCES: Final = {
    "kafka.properties": _PROPERTIES,
    "sasl_command.conf": _COMMAND_CONFIG,
    # What we take from neither: the login module stands in the settings, and the log goes to its process's output.
    "kafka_server_jaas.conf": "# {jaas_config}",
    "log4j.properties": "",
}

_SCRIPTS: Final = {
    "kafka-storage.sh": 'storage "$@"',
    "kafka-topics.sh": 'topics "$@"',
    "kafka-run-class.sh": 'server start "$2"',
}

#: A plugin of pytest: how the suite holds the process of a broker.
PLUGIN: Final = """
import subprocess, tempfile, time

import test.integration.fixtures as fixtures


class Service:
    def __init__(self, arguments, environment):
        self._arguments, self._environment, self._process = arguments, environment, None

    def start(self):
        self._output = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._arguments, env=self._environment, stdout=self._output, stderr=subprocess.STDOUT
        )

    def wait_for(self, pattern, timeout):
        # Of a node of ours one line says that all is there, users too.
        ends_at = time.monotonic() + max(timeout, 60)
        while time.monotonic() < ends_at and self._process.poll() is None:
            if b"ready: " in self._told():
                return True
            time.sleep(0.05)
        return False

    def _told(self):
        self._output.seek(0)
        return self._output.read()

    def stop(self):
        self._process.terminate()
        self._process.wait(30)

    def dump_logs(self):
        print(self._told().decode(errors="replace"))


fixtures.SpawnedService = Service
format_log_dirs = fixtures.KafkaFixture._format_log_dirs


def format_with_all_settings(self):
    # It fills in mechanism and users only afterwards: Kafka's default is Kerberos, which we refuse by name.
    self.sasl_config, self.jaas_config = self._sasl_config(), self._jaas_config()
    file = self.tmp_dir.join("kafka.properties")
    self.render_template(self.test_resource("kafka.properties"), file, vars(self))
    return format_log_dirs(self)


fixtures.KafkaFixture._format_log_dirs = format_with_all_settings
"""


def make_root(folder: Path) -> dict[str, str]:
    """Fill a folder; what the environment of the suite must say of it."""
    scripts, resources = folder / "bin", folder / "servers" / "resources" / "default"
    for each in (scripts, resources):
        each.mkdir(parents=True)
    for name, words in _SCRIPTS.items():
        script = scripts / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m barnabas {words}\n')
        script.chmod(0o755)
    for name, template in _RESOURCES.items():
        (resources / name).write_text(template or "# nothing\n")
    return {"KAFKA_ROOT": str(folder), "PROJECT_ROOT": str(folder)}
