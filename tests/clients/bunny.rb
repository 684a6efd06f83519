# The programme of `programmes.py` with Bunny. Arguments: port, prefix of all names, number of messages.
require "bunny"

port, prefix, count = ARGV[0].to_i, ARGV[1], ARGV[2].to_i
options = { host: "127.0.0.1", port: port, automatically_recover: false, log_level: :fatal }
if ENV["TLS_CA"]
  options.merge!(host: "localhost", tls: true, tls_ca_certificates: [ENV["TLS_CA"]], verify_peer: true)
end
connection = Bunny.new(options).start

channel = connection.create_channel
exchange = channel.exchange(prefix, type: "x-consistent-hash", durable: true)
queues = [1, 2].map { |i| channel.queue("#{prefix}-#{i}", durable: true).bind(exchange, routing_key: i.to_s) }

channel.confirm_select
count.times { |i| exchange.publish("order #{i}", routing_key: i.to_s, persistent: true, headers: { "number" => i }) }
puts "confirmed: #{channel.wait_for_confirms ? count : 0}"

returned = Thread::Queue.new
direct = channel.direct("amq.direct")
direct.on_return { |info, _, _| returned << "#{info.reply_code} #{info.reply_text}" }
direct.publish("lost", routing_key: "nowhere", mandatory: true)
puts "returned: #{returned.pop}"

reader = connection.create_channel
reader.prefetch(10)
arrived = Thread::Queue.new
queues.each do |queue|
  reader.queue(queue.name, durable: true).subscribe(manual_ack: true) { |info, _, body| arrived << [info, body] }
end
bodies, redelivered, rejected = [], 0, false
until bodies.size == count
  info, body = arrived.pop
  redelivered += 1 if info.redelivered?
  if rejected
    reader.ack(info.delivery_tag)
    bodies << body
  else
    reader.reject(info.delivery_tag, true)
    rejected = true
  end
end
puts "consumed: #{bodies.uniq.size}"
puts "redelivered: #{redelivered}"

begin
  connection.create_channel.queue("ghost", passive: true)
rescue Bunny::NotFound => e
  puts "missing: #{e.channel_close.reply_code} #{e.channel_close.reply_text}"
end

queues.each(&:delete)
exchange.delete
connection.close

begin
  Bunny.new(options.merge(password: "sesame")).start
rescue Bunny::AuthenticationFailureError
  puts "password: refused"
end
