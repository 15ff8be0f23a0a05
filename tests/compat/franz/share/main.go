// Does what tests/support/share_worker.py does, with franz-go's share consumer: SERVERS NAME GROUP LOCK_S.
package main

import (
	"context"
	"encoding/json"
	"log"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	clockMonotonic = 1
	// latencyS is more than a response takes from the broker's lock to its decoding.
	latencyS = 0.5
)

type event struct {
	BeginS        float64  `json:"begin_s"`
	EndS          float64  `json:"end_s"`
	Member        string   `json:"member"`
	Act           string   `json:"act"`
	Place         [2]int64 `json:"place"`
	DeliveryCount int32    `json:"delivery_count"`
}

// seconds is the clock that all processes of the machine share.
func seconds() float64 {
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	return float64(now.Sec) + float64(now.Nsec)/1e9
}

func main() {
	servers, name, group := os.Args[1], os.Args[2], os.Args[3]
	lockS, err := strconv.ParseFloat(os.Args[4], 64)
	if err != nil {
		log.Fatal(err)
	}
	var outcomes outcomes
	client, err := kgo.NewClient(
		kgo.SeedBrokers(servers),
		kgo.ShareGroup(group),
		kgo.ConsumeTopics(group),
		kgo.ShareMaxRecords(100),
		kgo.ShareMaxRecordsStrict(), // else records wait in the client while it sleeps, until their locks time out
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			outcomes.add(results)
		}),
	)
	if err != nil {
		log.Fatal(err)
	}
	out := json.NewEncoder(os.Stdout)
	for {
		asked := seconds()
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		records := client.PollRecords(ctx, 100).Records()
		cancel()
		got := seconds()
		for _, each := range records {
			// It may have waited in the client since before this poll.
			acquired := got + time.Until(each.AcquisitionDeadline()).Seconds() - lockS - latencyS
			out.Encode(event{min(asked, acquired), got, name, "delivered", place(each), each.DeliveryCount()})
		}
		if len(records) == 0 {
			continue
		}
		acts := make([]kgo.AckStatus, len(records))
		switch rand.IntN(20) {
		case 0:
			time.Sleep(time.Duration(lockS * 1.5 * float64(time.Second)))
		case 1:
			time.Sleep(time.Duration(lockS * 0.5 * float64(time.Second)))
			for index := range acts {
				acts[index] = kgo.AckRenew
			}
			acknowledge(client, &outcomes, out, name, records, acts)
			time.Sleep(time.Duration(lockS * 0.75 * float64(time.Second)))
		}
		for index := range acts {
			acts[index] = kgo.AckAccept
			if number := rand.IntN(10); number < 2 {
				acts[index] = []kgo.AckStatus{kgo.AckRelease, kgo.AckReject}[number]
			}
		}
		acknowledge(client, &outcomes, out, name, records, acts)
	}
}

// acknowledge sends what is to become of records, and tells what the brokers have answered.
func acknowledge(
	client *kgo.Client, outcomes *outcomes, out *json.Encoder, name string, records []*kgo.Record, acts []kgo.AckStatus,
) {
	outcomes.clear()
	sent := seconds()
	for index, each := range records {
		each.Ack(acts[index])
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	flushed := client.FlushAcks(ctx)
	cancel()
	ended := seconds()
	names := map[kgo.AckStatus]string{
		kgo.AckAccept: "accept", kgo.AckRelease: "release", kgo.AckReject: "reject", kgo.AckRenew: "renew",
	}
	for index, each := range records {
		act := names[acts[index]]
		if flushed != nil || !outcomes.areGood(each.Partition) {
			act = "unknown"
		}
		out.Encode(event{sent, ended, name, act, place(each), 0})
	}
}

// outcomes has what brokers have answered to acknowledgements, by partition.
type outcomes struct {
	mutex  sync.Mutex
	errors map[int32]error
}

func (o *outcomes) clear() {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.errors = map[int32]error{}
}

func (o *outcomes) add(results kgo.ShareAckResults) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	for _, each := range results {
		if before, known := o.errors[each.Partition]; o.errors != nil && (!known || before == nil) {
			o.errors[each.Partition] = each.Err
		}
	}
}

func (o *outcomes) areGood(partition int32) bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	outcome, known := o.errors[partition]
	return known && outcome == nil
}

func place(each *kgo.Record) [2]int64 {
	return [2]int64{int64(each.Partition), each.Offset}
}
