// Shares the queues of a consistent hash exchange: start it several times, stop some, start more.
// Every key's messages come to one process at a time, in order.
//
//	go run consumer_group.go amqp://guest:guest@127.0.0.1:5672/ [MESSAGES [IDLE SECONDS]]
package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"os"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func must[T any](found T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return found
}

func number(place int, otherwise int) int {
	if len(os.Args) <= place {
		return otherwise
	}
	return must(strconv.Atoi(os.Args[place]))
}

func main() {
	connection := must(amqp.Dial(os.Args[1]))
	defer connection.Close()
	channel := must(connection.Channel())
	if err := channel.ExchangeDeclare("orders", "x-consistent-hash", true, false, false, false, nil); err != nil {
		log.Fatal(err)
	}
	for i := 0; i < 4; i++ {
		queue := must(channel.QueueDeclare(fmt.Sprintf("orders-%d", i), true, false, false, false, nil))
		if err := channel.QueueBind(queue.Name, "1", "orders", false, nil); err != nil {
			log.Fatal(err)
		}
	}
	for i := 0; i < number(2, 0); i++ {
		order := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(fmt.Sprintf("order %d", i))}
		key := fmt.Sprintf("customer %d", i%20)
		if err := channel.PublishWithContext(context.Background(), "orders", key, false, false, order); err != nil {
			log.Fatal(err)
		}
	}

	if err := channel.Qos(20, 0, false); err != nil { // over all the queues that this member is given
		log.Fatal(err)
	}
	group := amqp.Table{"x-consumer-group": "billing"}
	deliveries := must(channel.Consume("orders", "", false, false, false, false, group))
	idle := time.Duration(number(3, math.MaxInt32)) * time.Second
	for {
		select {
		case delivery, open := <-deliveries:
			if !open {
				log.Fatal("cancelled")
			}
			fmt.Println(os.Getpid(), delivery.Headers["x-queue"], delivery.RoutingKey, string(delivery.Body))
			if err := delivery.Ack(false); err != nil {
				log.Fatal(err)
			}
		case <-time.After(idle):
			return
		}
	}
}
