// `sasl.js BOOTSTRAP TOPIC` logs in as the object says that it reads, sends a record and reads it again. Prints what it read.
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, topic] = process.argv.slice(2)
const { ca, ...given } = JSON.parse(require('fs').readFileSync(0, 'utf8'))
const ssl = ca ? { ca: [ca] } : undefined
const sasl = given.token
  ? { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: given.token }) }
  : given
const kafka = new Kafka({ clientId: 'sasl', brokers: [bootstrap], logLevel: logLevel.NOTHING, ssl, sasl, retry: { retries: 5 } })

const story = async () => {
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic, messages: [{ value: 'from kafkajs' }] })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: topic })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const value = await new Promise((resolve, reject) => {
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) }).catch(reject)
  })
  await consumer.disconnect()
  return value
}

story().then(value => console.log(value)).catch(error => {
  console.error(error.name + ': ' + error.message)
  process.exit(1)
})
