#!/usr/bin/env ruby
# frozen_string_literal: true

# Spreads messages over four queues of different weight, by routing key, header or property: 100,000 unless told.
#
#     ruby spreading.rb amqp://guest:guest@127.0.0.1:5672/%2F [routing-key | header | property] [COUNT]

require "bunny"

WEIGHTS = { "q1" => 1, "q2" => 1, "q3" => 2, "q4" => 2 }.freeze
ARGUMENTS = {
  "routing-key" => {},
  "header" => { "hash-header" => "hash-on" },
  "property" => { "hash-property" => "message_id" }
}.freeze

url, way, count = ARGV
way ||= "routing-key"
connection = Bunny.new(url).start
channel = connection.create_channel
exchange = channel.exchange("ruby-#{way}", type: "x-consistent-hash", durable: true, arguments: ARGUMENTS.fetch(way))
queues = WEIGHTS.map do |name, weight|
  queue = channel.queue(name, durable: true)
  queue.purge
  queue.bind(exchange, routing_key: weight.to_s) # the binding key is the weight
end
channel.confirm_select
(count || 100_000).to_i.times do |number|
  key = number.to_s
  case way
  when "header" then exchange.publish("", headers: { "hash-on" => key })
  when "property" then exchange.publish("", message_id: key)
  else exchange.publish("", routing_key: key)
  end
  channel.wait_for_confirms if (number % 2000).zero?
end
abort "not everything was published" unless channel.wait_for_confirms
queues.each { |queue| puts "#{queue.name} #{queue.message_count}" }
connection.close
