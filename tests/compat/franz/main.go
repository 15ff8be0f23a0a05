// Copies topics exactly once with franz-go's GroupTransactSession, some transactions of which it aborts:
//
//	franz BOOTSTRAP GROUP PROTOCOL TRANSACTIONAL_ID RECORDS TOPIC...
//
// Each topic goes to TOPIC-copy, partition by partition, at most RECORDS in a transaction, until the process is killed.
// PROTOCOL is classic or consumer. What it cannot mend ends it with exit code 1; whoever runs it starts it again.
package main

import (
	"context"
	"log"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const abortedShare = 0.2

func main() {
	bootstrap, group, protocol, transactionalID, topics := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[6:]
	records, err := strconv.Atoi(os.Args[5])
	if err != nil {
		log.Fatal(err)
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.TransactionalID(transactionalID),
		kgo.TransactionTimeout(10 * time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topics...),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}
	if protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	} else {
		options = append(options, kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(300*time.Millisecond))
	}
	session, err := kgo.NewGroupTransactSession(options...)
	if err != nil {
		log.Fatal(err)
	}
	for {
		if err := copyOnce(session, records); err != nil {
			log.Fatal(err)
		}
	}
}

// copyOnce copies what one poll brings, in one transaction with its offsets.
func copyOnce(session *kgo.GroupTransactSession, records int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	fetches := session.PollRecords(ctx, records)
	if fetches.Empty() {
		return nil
	}
	if err := session.Begin(); err != nil {
		return err
	}
	produced := kgo.AbortingFirstErrPromise(session.Client())
	fetches.EachRecord(func(record *kgo.Record) {
		copied := &kgo.Record{Topic: record.Topic + "-copy", Partition: record.Partition, Value: record.Value}
		session.Produce(ctx, copied, produced.Promise())
	})
	isGood := produced.Err() == nil && rand.Float64() >= abortedShare
	_, err := session.End(ctx, kgo.TransactionEndTry(isGood))
	return err
}
