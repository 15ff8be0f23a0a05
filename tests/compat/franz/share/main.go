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
	var mutex sync.Mutex
	outcomes := map[int32]error{}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(servers),
		kgo.ShareGroup(group),
		kgo.ConsumeTopics(group),
		kgo.ShareMaxRecords(100),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			mutex.Lock()
			defer mutex.Unlock()
			for _, each := range results {
				if before, known := outcomes[each.Partition]; !known || before == nil {
					outcomes[each.Partition] = each.Err
				}
			}
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
		if rand.IntN(20) == 0 {
			time.Sleep(time.Duration(lockS * 1.5 * float64(time.Second)))
		}
		mutex.Lock()
		clear(outcomes)
		mutex.Unlock()
		sent := seconds()
		acts := make([]string, len(records))
		for index, each := range records {
			switch rand.IntN(10) {
			case 0:
				acts[index] = "release"
				each.Ack(kgo.AckRelease)
			case 1:
				acts[index] = "reject"
				each.Ack(kgo.AckReject)
			default:
				acts[index] = "accept"
				each.Ack(kgo.AckAccept)
			}
		}
		ctx, cancel = context.WithTimeout(context.Background(), 20*time.Second)
		flushed := client.FlushAcks(ctx)
		cancel()
		ended := seconds()
		mutex.Lock()
		for index, each := range records {
			if outcome, known := outcomes[each.Partition]; flushed != nil || !known || outcome != nil {
				acts[index] = "unknown"
			}
			out.Encode(event{sent, ended, name, acts[index], place(each), 0})
		}
		mutex.Unlock()
	}
}

func place(each *kgo.Record) [2]int64 {
	return [2]int64{int64(each.Partition), each.Offset}
}
