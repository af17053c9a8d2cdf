// Stories of franz-go, the client of the Go world, in transactions. Each prints one line of JSON with what it saw.
//
//	stories transactions BOOTSTRAP TOPIC ID        commits, aborts, is fenced by a second client with the same id
//	stories committed BOOTSTRAP TOPIC COUNT        what a reader of committed data sees, once it has seen so many
//	stories loop BOOTSTRAP SOURCE TARGET GROUP ID COUNT DIES_AFTER
//	                                               reads, computes and writes as a GroupTransactSession, until the group
//	                                               is at COUNT; leaves without a word after so many records, if not 0
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 50 * time.Second

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	arguments := os.Args[2:]
	var facts any
	var err error
	switch os.Args[1] {
	case "transactions":
		facts, err = transactions(ctx, arguments[0], arguments[1], arguments[2])
	case "committed":
		facts, err = committed(ctx, arguments[0], arguments[1], number(arguments[2]))
	case "loop":
		facts, err = loop(ctx, arguments)
	default:
		err = fmt.Errorf("no story %q", os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	text, _ := json.Marshal(facts)
	fmt.Println(string(text))
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return value
}

func producer(bootstrap, topic, id string) (*kgo.Client, error) {
	return kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(30*time.Second),
		kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
	)
}

func write(ctx context.Context, client *kgo.Client, values ...int) error {
	for _, value := range values {
		record := &kgo.Record{Partition: int32(value % 2), Value: []byte(strconv.Itoa(value))}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

func transactions(ctx context.Context, bootstrap, topic, id string) (any, error) {
	older, err := producer(bootstrap, topic, id)
	if err != nil {
		return nil, err
	}
	defer older.Close()
	for _, each := range []struct {
		values []int
		how    kgo.TransactionEndTry
	}{{[]int{0, 1, 2}, kgo.TryCommit}, {[]int{3, 4, 5}, kgo.TryAbort}, {[]int{6, 7}, kgo.TryCommit}} {
		if err := older.BeginTransaction(); err != nil {
			return nil, err
		}
		if err := write(ctx, older, each.values...); err != nil {
			return nil, err
		}
		if err := older.EndTransaction(ctx, each.how); err != nil {
			return nil, err
		}
	}
	if err := older.BeginTransaction(); err != nil {
		return nil, err
	}
	if err := write(ctx, older, 8, 9); err != nil {
		return nil, err
	}
	newer, err := producer(bootstrap, topic, id)
	if err != nil {
		return nil, err
	}
	defer newer.Close()
	if err := newer.BeginTransaction(); err != nil {
		return nil, err
	}
	if err := write(ctx, newer, 10, 11); err != nil {
		return nil, err
	}
	fenced := ""
	var refused *kerr.Error
	if err := older.EndTransaction(ctx, kgo.TryCommit); errors.As(err, &refused) {
		fenced = refused.Message
	} else if err != nil {
		fenced = err.Error()
	}
	if err := newer.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return nil, err
	}
	return map[string]any{"fenced": fenced}, nil
}

func committed(ctx context.Context, bootstrap, topic string, count int) (any, error) {
	values := map[string][]int{}
	for level, isolation := range map[string]kgo.IsolationLevel{
		"committed": kgo.ReadCommitted(), "everything": kgo.ReadUncommitted(),
	} {
		client, err := kgo.NewClient(
			kgo.SeedBrokers(bootstrap),
			kgo.ConsumeTopics(topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.FetchIsolationLevel(isolation),
			kgo.FetchMaxWait(200*time.Millisecond),
		)
		if err != nil {
			return nil, err
		}
		found := []int{}
		for len(found) < count || quiet(ctx, client, &found) {
			fetches := client.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				return nil, fmt.Errorf("%d of %d came: %w", len(found), count, err)
			}
			take(fetches, &found)
		}
		client.Close()
		sort.Ints(found)
		values[level] = found
	}
	return values, nil
}

func take(fetches kgo.Fetches, found *[]int) {
	fetches.EachRecord(func(record *kgo.Record) { *found = append(*found, number(string(record.Value))) })
}

// quiet waits a moment for what is too much, and says whether there is still something to wait for.
func quiet(ctx context.Context, client *kgo.Client, found *[]int) bool {
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	before := len(*found)
	take(client.PollFetches(brief), found)
	return len(*found) > before
}

func loop(ctx context.Context, arguments []string) (any, error) {
	bootstrap, source, target, group, id := arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]
	count, diesAfter := number(arguments[5]), number(arguments[6])
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap),
		kgo.DefaultProduceTopic(target),
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(30*time.Second),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(3*time.Second),
		kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.FetchMaxWait(200*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	written, transactions := 0, 0
	for done(session.Client(), source) < count {
		fetches := session.PollRecords(ctx, 20)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return nil, err
		}
		failure := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, kgo.KeySliceRecord(record.Value, record.Value), failure.Promise())
			if written++; written == diesAfter {
				_ = session.Client().Flush(ctx) // it is in the log, and nobody will end it
				os.Exit(3)
			}
		})
		if _, err := session.End(ctx, failure.Err() == nil); err != nil {
			return nil, err
		}
		transactions++
	}
	session.Close()
	return map[string]any{"transactions": transactions}, nil
}

// done tells how many records the group has behind it, by what was committed.
func done(client *kgo.Client, topic string) int {
	total := 0
	for _, each := range client.CommittedOffsets()[topic] {
		total += int(each.Offset)
	}
	return total
}
