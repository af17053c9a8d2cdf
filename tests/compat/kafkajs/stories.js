// What kafkajs sees of a broker: `node stories.js STORY BOOTSTRAP PREFIX` plays one story and prints what happened as JSON.
// Every name that a story creates begins with PREFIX. The Python beside it says what should have happened.

'use strict'

const { Kafka, CompressionCodecs, CompressionTypes, ConfigResourceTypes, logLevel } = require('kafkajs')
const SnappyCodec = require('kafkajs-snappy')

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec

const [, , storyName, bootstrap, prefix] = process.argv
const kafka = new Kafka({
  clientId: 'kafkajs-stories',
  brokers: [bootstrap],
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, retries: 4 },
})

const text = buffer => (buffer === null || buffer === undefined ? null : buffer.toString())

/** The type and text of the error that an action ends with, or null. */
async function errorOf(action) {
  try {
    await action()
    return null
  } catch (error) {
    const first = error.errors ? error.errors[0] : error.groups ? error.groups[0].error : error
    return first.type || (first.cause && first.cause.type) || first.name
  }
}

async function until(condition, what) {
  const deadline = Date.now() + 20000
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`timed out: ${what}`)
    await new Promise(resolve => setTimeout(resolve, 10))
  }
}

async function withAdmin(action) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await action(admin)
  } finally {
    await admin.disconnect()
  }
}

const createTopic = (topic, numPartitions) =>
  withAdmin(admin => admin.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions }] }))

async function withProducer(options, action) {
  const producer = kafka.producer(options)
  await producer.connect()
  try {
    return await action(producer)
  } finally {
    await producer.disconnect()
  }
}

function consumerOf(groupId, options = {}) {
  return kafka.consumer({
    groupId,
    maxWaitTimeInMs: 100,
    sessionTimeout: 10000,
    rebalanceTimeout: 10000,
    heartbeatInterval: 200,
    ...options,
  })
}

/** Every record of a topic, in order per partition, once `count` were seen. */
async function readAll(topic, count, groupId) {
  const consumer = consumerOf(groupId)
  const seen = []
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => seen.push({ partition, ...message }),
  })
  await until(() => seen.length >= count, `${count} records of ${topic}, seen ${seen.length}`)
  await consumer.disconnect()
  return seen.sort((one, other) => one.partition - other.partition || Number(one.offset) - Number(other.offset))
}

const stories = {
  async admin() {
    const topic = `${prefix}admin`
    return withAdmin(async admin => {
      const facts = {}
      const spec = {
        topic,
        numPartitions: 2,
        replicationFactor: 1,
        configEntries: [{ name: 'retention.ms', value: '123456' }],
      }
      facts.dryRun = await admin.createTopics({ validateOnly: true, waitForLeaders: false, topics: [spec] })
      facts.listedAfterDryRun = (await admin.listTopics()).includes(topic)
      facts.created = await admin.createTopics({ topics: [spec] })
      facts.createdAgain = await admin.createTopics({ topics: [spec] })
      facts.listed = (await admin.listTopics()).includes(topic)
      await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] })
      const metadata = await admin.fetchTopicMetadata({ topics: [topic] })
      facts.partitions = metadata.topics[0].partitions
        .map(each => [each.partitionId, each.leader, each.replicas, each.isr, each.partitionErrorCode])
        .sort((one, other) => one[0] - other[0])
      const cluster = await admin.describeCluster()
      facts.brokers = cluster.brokers.map(each => `${each.host}:${each.port}`)
      facts.brokerIds = cluster.brokers.map(each => each.nodeId)
      facts.controller = cluster.controller
      facts.clusterIdLength = cluster.clusterId.length

      const configOf = async names => {
        const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: names }]
        const described = await admin.describeConfigs({ resources, includeSynonyms: true })
        const entries = described.resources[0].configEntries
        return Object.fromEntries(entries.map(each => [each.configName, [each.configValue, each.configSource]]))
      }
      facts.configs = await configOf(['retention.ms', 'cleanup.policy'])
      facts.allConfigs = Object.keys(await configOf([])).length
      const changed = [{ name: 'cleanup.policy', value: 'compact' }]
      await admin.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: changed }] })
      facts.configsAltered = await configOf(['retention.ms', 'cleanup.policy'])
      await admin.deleteTopics({ topics: [topic] })
      await until(async () => !(await admin.listTopics()).includes(topic), 'deletion')
      facts.listedAfterDeletion = (await admin.listTopics()).includes(topic)
      return facts
    })
  },

  async errors() {
    const topic = `${prefix}errors`
    return withAdmin(async admin => {
      const create = spec => errorOf(() => admin.createTopics({ topics: [{ topic: `${prefix}x`, ...spec }] }))
      const facts = {
        tooManyReplicas: await create({ replicationFactor: 9 }),
        noPartitions: await create({ numPartitions: 0 }),
        badName: await create({ topic: 'no spaces' }),
        badConfig: await create({ configEntries: [{ name: 'retention.ms', value: 'soon' }] }),
        unknownConfig: await create({ configEntries: [{ name: 'no.such.config', value: '1' }] }),
        deleteUnknown: await errorOf(() => admin.deleteTopics({ topics: [`${prefix}none`] })),
        metadataUnknown: await errorOf(() => admin.fetchTopicMetadata({ topics: ['no spaces'] })),
      }
      await admin.createTopics({ topics: [{ topic, numPartitions: 1 }] })
      const fewer = [{ topic, count: 1 }]
      facts.fewerPartitions = await errorOf(() => admin.createPartitions({ topicPartitions: fewer }))
      const huge = { topic, messages: [{ value: Buffer.alloc(1100000) }] }
      facts.tooLarge = await withProducer({}, producer => errorOf(() => producer.send(huge)))
      facts.emptyGroup = (await admin.describeGroups([`${prefix}none`])).groups[0].state
      facts.deleteUnknownGroup = await errorOf(() => admin.deleteGroups([`${prefix}none`]))
      facts.keysWanted = await withProducer({}, async producer => {
        await admin.createTopics({
          topics: [{ topic: `${topic}-c`, configEntries: [{ name: 'cleanup.policy', value: 'compact' }] }],
        })
        return errorOf(() => producer.send({ topic: `${topic}-c`, messages: [{ value: 'no key' }] }))
      })
      return facts
    })
  },

  async records() {
    const topic = `${prefix}records`
    await createTopic(topic, 1)
    const codecs = [CompressionTypes.None, CompressionTypes.GZIP, CompressionTypes.Snappy]
    const messages = codec => [
      { key: `k${codec}`, value: 'plain', timestamp: '1700000000123' },
      { key: null, value: 'no key', headers: { one: 'eins', many: ['a', 'b'], empty: '' } },
      { key: 'tombstone', value: null },
      { key: '', value: '' },
      { key: 'äß漢🎉', value: 'x'.repeat(900000) },
    ]
    const sent = []
    await withProducer({}, async producer => {
      for (const codec of codecs)
        sent.push(...(await producer.send({ topic, acks: -1, compression: codec, messages: messages(codec) })))
      sent.push(...(await producer.send({ topic, acks: 1, messages: [{ value: 'acks 1' }] })))
      await producer.send({ topic, acks: 0, messages: [{ value: 'acks 0' }] })
    })
    const seen = await readAll(topic, 3 * 5 + 2, `${prefix}records-g`)
    return {
      baseOffsets: sent.map(each => each.baseOffset),
      errorCodes: sent.map(each => each.errorCode),
      logStartOffsets: sent.map(each => each.logStartOffset),
      records: seen.map(each => ({
        offset: each.offset,
        key: text(each.key),
        value: each.value === null || each.value.length < 100 ? text(each.value) : each.value.length,
        timestamp: each.timestamp,
        headers: Object.fromEntries(
          Object.entries(each.headers).map(([name, value]) => [name, Array.isArray(value) ? value.map(text) : text(value)])
        ),
      })),
    }
  },

  async idempotent() {
    const topic = `${prefix}idempotent`
    await createTopic(topic, 3)
    await withProducer({ idempotent: true, maxInFlightRequests: 1 }, async producer => {
      for (let round = 0; round < 20; round++)
        await producer.send({
          topic,
          messages: Array.from({ length: 30 }, (_, i) => ({ key: `k${i % 7}`, value: `${round * 30 + i}` })),
        })
    })
    const seen = await readAll(topic, 600, `${prefix}idempotent-g`)
    const byKey = {}
    for (const each of seen) (byKey[text(each.key)] ||= []).push(Number(text(each.value)))
    return {
      count: seen.length,
      distinct: new Set(seen.map(each => text(each.value))).size,
      orderedPerKey: Object.values(byKey).every(values => values.every((value, i) => i === 0 || values[i - 1] < value)),
    }
  },

  /** Two members share four partitions, one leaves, the other takes over; nothing is lost or repeated. */
  async rebalance() {
    const topic = `${prefix}rebalance`
    const groupId = `${prefix}rebalance-g`
    await createTopic(topic, 4)
    const assignments = { one: [], two: [] }
    const seen = []
    const start = async name => {
      const consumer = consumerOf(groupId)
      consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
        assignments[name].push((payload.memberAssignment[topic] || []).slice().sort())
        assignments.protocol = payload.groupProtocol
      })
      await consumer.connect()
      await consumer.subscribe({ topics: [topic], fromBeginning: true })
      await consumer.run({ eachMessage: async ({ message }) => seen.push(text(message.value)) })
      return consumer
    }
    const last = name => assignments[name][assignments[name].length - 1] || []
    const send = (from, to) =>
      withProducer({}, producer =>
        producer.send({
          topic,
          messages: Array.from({ length: to - from }, (_, i) => ({ partition: i % 4, value: `${from + i}` })),
        })
      )
    const one = await start('one')
    await until(() => last('one').length === 4, 'one owns all')
    await send(0, 100)
    await until(() => seen.length >= 100, 'first hundred')
    const two = await start('two')
    await until(() => last('one').length === 2 && last('two').length === 2, 'two share')
    const shared = [last('one'), last('two')]
    const group = await withAdmin(async admin => {
      const described = (await admin.describeGroups([groupId])).groups[0]
      const listed = (await admin.listGroups()).groups.find(each => each.groupId === groupId)
      return {
        state: described.state,
        protocolType: described.protocolType,
        protocol: described.protocol,
        members: described.members.map(each => [each.clientId, each.clientHost]),
        listed,
        deletion: await errorOf(() => admin.deleteGroups([groupId])),
      }
    })
    await send(100, 200)
    await until(() => seen.length >= 200, 'second hundred')
    await one.disconnect()
    await until(() => last('two').length === 4, 'two takes over')
    await send(200, 300)
    await until(() => seen.length >= 300, 'third hundred')
    await two.disconnect()
    const after = await withAdmin(async admin => {
      const state = (await admin.describeGroups([groupId])).groups[0].state
      const deletion = await admin.deleteGroups([groupId])
      return { state, deletion, stateOfDeleted: (await admin.describeGroups([groupId])).groups[0].state }
    })
    const sorted = seen.map(Number).sort((a, b) => a - b)
    return { shared, protocol: assignments.protocol, group, after, whole: sorted.every((value, i) => value === i), count: seen.length }
  },

  async offsets() {
    const topic = `${prefix}offsets`
    const groupId = `${prefix}offsets-g`
    await createTopic(topic, 1)
    await withProducer({}, producer =>
      producer.send({
        topic,
        messages: Array.from({ length: 10 }, (_, i) => ({ value: `${i}`, timestamp: `${1700000000000 + i * 1000}` })),
      })
    )
    const facts = {}
    /** Reads until `done` says so; commits every record when told to. */
    const read = async (done, { group = groupId, commit = false, before = () => {} } = {}) => {
      const consumer = consumerOf(group)
      const seen = []
      await consumer.connect()
      await consumer.subscribe({ topics: [topic], fromBeginning: true })
      await consumer.run({
        autoCommit: false,
        eachMessage: async ({ message }) => {
          if (done(seen)) return
          seen.push(Number(message.offset))
          if (commit) {
            const offset = String(Number(message.offset) + 1)
            await consumer.commitOffsets([{ topic, partition: 0, offset, metadata: `after ${message.offset}` }])
          }
        },
      })
      await before(consumer)
      await until(() => done(seen), `records, seen ${seen}`)
      await consumer.disconnect()
      return seen
    }
    facts.first = await read(seen => seen.length === 4, { commit: true })
    await withAdmin(async admin => {
      facts.committed = (await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions
      facts.resumed = await read(seen => seen.length === 6)
      facts.topicOffsets = await admin.fetchTopicOffsets(topic)
      const at = async timestamp => (await admin.fetchTopicOffsetsByTimestamp(topic, timestamp))[0].offset
      facts.byTime = [await at(0), await at(1700000004500), await at(1700000009000), await at(1800000000000)]
      facts.sought = await read(seen => seen.length === 3, {
        before: consumer => consumer.seek({ topic, partition: 0, offset: facts.byTime[1] }),
      })
      // kafkajs sets offsets by joining the group and sleeping for five seconds, so three groups at once.
      const set = (group, offset) => admin.setOffsets({ groupId: group, topic, partitions: [{ partition: 0, offset }] })
      const [early, latest] = [`${groupId}-early`, `${groupId}-latest`]
      await Promise.all([set(groupId, '8'), set(early, '1'), admin.resetOffsets({ groupId: latest, topic })])
      facts.afterSetOffsets = await read(seen => seen.length === 2)
      facts.afterReset = (await admin.fetchOffsets({ groupId: latest, topics: [topic] }))[0].partitions
      await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '6' }] })
      facts.topicOffsetsAfterDeletion = await admin.fetchTopicOffsets(topic)
      facts.outOfRange = await read(seen => seen.length === 4, { group: early })
    })
    return facts
  },

  async pause() {
    const topic = `${prefix}pause`
    await createTopic(topic, 2)
    const send = value =>
      withProducer({}, producer =>
        producer.send({ topic, messages: [0, 1].map(partition => ({ partition, value: `${value}` })) })
      )
    const consumer = consumerOf(`${prefix}pause-g`)
    const seen = []
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({ eachMessage: async ({ partition, message }) => seen.push(`${partition}:${text(message.value)}`) })
    await send('a')
    await until(() => seen.length === 2, 'both partitions')
    consumer.pause([{ topic, partitions: [1] }])
    await send('b')
    await send('c')
    await until(() => seen.includes('0:c'), 'the partition that is not paused')
    const whilePaused = seen.filter(each => each.startsWith('1:')).length
    consumer.resume([{ topic, partitions: [1] }])
    await until(() => seen.length === 6, 'the rest')
    await consumer.disconnect()
    return { whilePaused, seen: seen.sort() }
  },

  async transactions() {
    const topic = `${prefix}transactions`
    const groupId = `${prefix}transactions-g`
    await createTopic(topic, 2)
    const options = { transactionalId: `${prefix}id`, idempotent: true, maxInFlightRequests: 1, transactionTimeout: 30000 }
    const older = kafka.producer(options)
    await older.connect()
    const messages = values => values.map(value => ({ partition: value % 2, value: `${value}` }))
    const offset = async () =>
      withAdmin(async admin => {
        const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] })
        return partitions.find(each => each.partition === 0).offset
      })
    const offsets = []
    // The topic of offsets may be made just now, and kafkajs does not wait for it in transactions.
    await until(async () => (await errorOf(offset)) === null, 'a coordinator of the group')
    for (const [values, committed] of [[[0, 1, 2], true], [[3, 4, 5], false], [[6, 7], true]]) {
      const transaction = await older.transaction()
      await transaction.send({ topic, messages: messages(values) })
      await transaction.sendOffsets({
        consumerGroupId: groupId,
        topics: [{ topic, partitions: [{ partition: 0, offset: `${values[0]}` }] }],
      })
      if (committed) await transaction.commit()
      else await transaction.abort()
      // The marker may come to the offsets a moment after the commit is answered.
      if (committed) await until(async () => (await offset()) === `${values[0]}`, 'the committed offset')
      offsets.push(await offset())
    }
    const open = await older.transaction()
    await open.send({ topic, messages: messages([8, 9]) })
    const newer = kafka.producer(options)
    await newer.connect()
    const transaction = await newer.transaction()
    await transaction.send({ topic, messages: messages([10, 11]) })
    const fenced = await errorOf(() => open.commit())
    await transaction.commit()
    await newer.disconnect()
    await older.disconnect()
    const committed = []
    const consumer = kafka.consumer({ groupId: `${prefix}transactions-r`, readUncommitted: false })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({ eachMessage: async ({ message }) => committed.push(Number(text(message.value))) })
    await until(() => committed.length >= 7, 'what was committed')
    await consumer.disconnect()
    return { offsets, fenced, committed: committed.sort((a, b) => a - b) }
  },
}

stories[storyName]()
  .then(facts => {
    console.log(JSON.stringify(facts))
    process.exit(0)
  })
  .catch(error => {
    console.error(error.stack)
    process.exit(1)
  })
