// `keys.js BOOTSTRAP TOPIC` sends a record for each key, in base64, of the list that it reads, wherever kafkajs puts it.
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, topic] = process.argv.slice(2)
const keys = JSON.parse(require('fs').readFileSync(0, 'utf8')).map(key => Buffer.from(key, 'base64'))
const producer = new Kafka({ clientId: 'keys', brokers: [bootstrap], logLevel: logLevel.NOTHING }).producer()

const send = async () => {
  await producer.connect()
  await producer.send({ topic, messages: keys.map(key => ({ key, value: 'x' })) })
  await producer.disconnect()
}

send().catch(error => {
  console.error(error.stack)
  process.exit(1)
})
