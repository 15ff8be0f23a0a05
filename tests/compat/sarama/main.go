// Sarama against a broker: `sarama BOOTSTRAP TOPIC GROUP` prints what it found as one JSON object.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/IBM/sarama"
)

const records = 10

type found struct {
	Partitions   int32    `json:"partitions"`
	Retention    string   `json:"retention"`
	CreatedAgain string   `json:"createdAgain"`
	Values       []string `json:"values"`
	Offsets      []int64  `json:"offsets"`
	Group        []string `json:"group"`
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.ClientID = "sarama"
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Compression = sarama.CompressionZSTD
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	return config
}

func administer(admin sarama.ClusterAdmin, topic string, seen *found) {
	retention := "123456789"
	detail := &sarama.TopicDetail{
		NumPartitions: 3, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &retention},
	}
	check(admin.CreateTopic(topic, detail, false))
	if err := admin.CreateTopic(topic, detail, false); err != nil {
		seen.CreatedAgain = err.Error()
	}
	described, err := admin.DescribeTopics([]string{topic})
	check(err)
	seen.Partitions = int32(len(described[0].Partitions))
	entries, err := admin.DescribeConfig(sarama.ConfigResource{
		Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"},
	})
	check(err)
	seen.Retention = entries[0].Value
}

func message(topic, value string, number int) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{
		Topic: topic, Partition: int32(number % 3), Value: sarama.StringEncoder(value),
		Headers: []sarama.RecordHeader{{Key: []byte("number"), Value: []byte(fmt.Sprint(number))}},
	}
}

// Sends 10 records in a transaction that is committed, and one in a transaction that is aborted.
func produce(bootstrap, topic string) {
	settings := config()
	settings.Producer.Idempotent = true
	settings.Producer.Transaction.ID = topic + "-id"
	settings.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, settings)
	check(err)
	check(producer.BeginTxn())
	for number := 0; number < records; number++ {
		_, _, err := producer.SendMessage(message(topic, fmt.Sprintf("value %d", number), number))
		check(err)
	}
	check(producer.CommitTxn())
	check(producer.BeginTxn())
	_, _, err = producer.SendMessage(message(topic, "aborted", 0))
	check(err)
	check(producer.AbortTxn())
	check(producer.Close())
}

// What the group's members read.
var values = make(chan string)

type reader struct{}

func (*reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (*reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case record, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			session.MarkMessage(record, "")
			values <- fmt.Sprintf("%s, %s", record.Value, record.Headers[0].Value)
		case <-session.Context().Done():
			return nil
		}
	}
}

func consume(bootstrap, topic, group string) []string {
	consumers, err := sarama.NewConsumerGroup([]string{bootstrap}, group, config())
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := consumers.Consume(ctx, []string{topic}, &reader{}); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	var all []string
	for len(all) < records {
		select {
		case value := <-values:
			all = append(all, value)
		case err := <-ended:
			check(err)
			check(fmt.Errorf("%d records only: %v", len(all), all))
		}
	}
	cancel()
	<-ended
	check(consumers.Close())
	sort.Strings(all)
	return all
}

func main() {
	bootstrap, topic, group := os.Args[1], os.Args[2], os.Args[3]
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, config())
	check(err)
	var all found
	administer(admin, topic, &all)
	produce(bootstrap, topic)
	all.Values = consume(bootstrap, topic, group)
	offsets, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1, 2}})
	check(err)
	for partition := int32(0); partition < 3; partition++ {
		all.Offsets = append(all.Offsets, offsets.GetBlock(topic, partition).Offset)
	}
	groups, err := admin.DescribeConsumerGroups([]string{group})
	check(err)
	all.Group = []string{groups[0].State, groups[0].ProtocolType}
	check(admin.DeleteConsumerGroup(group))
	check(admin.DeleteTopic(topic))
	check(admin.Close())
	check(json.NewEncoder(os.Stdout).Encode(all))
}
