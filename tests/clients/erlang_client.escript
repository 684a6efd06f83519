#!/usr/bin/env escript
%% The programme of `programmes.py` with the RabbitMQ Erlang client, which ERL_LIBS must name.
%% Arguments: port, prefix of all names, number of messages.

-mode(compile).
-include_lib("amqp_client/include/amqp_client.hrl").

main([Port, Prefix, Count]) ->
    logger:set_primary_config(level, none),
    {ok, _} = application:ensure_all_started(amqp_client),
    Parameters = #amqp_params_network{host = "127.0.0.1", port = list_to_integer(Port), ssl_options = tls(os:getenv("TLS_CA"))},
    {ok, Connection} = amqp_connection:start(Parameters),
    run(Connection, list_to_binary(Prefix), list_to_integer(Count)),
    amqp_connection:close(Connection),
    {error, {auth_failure, _}} = amqp_connection:start(Parameters#amqp_params_network{password = <<"sesame">>}),
    say("password", "refused").

tls(false) -> none;
tls(File) -> [{cacertfile, File}, {verify, verify_peer}, {server_name_indication, "localhost"}].

run(Connection, Exchange, Count) ->
    {ok, Channel} = amqp_connection:open_channel(Connection),
    Queues = [<<Exchange/binary, "-1">>, <<Exchange/binary, "-2">>],
    declare(Channel, Exchange, Queues),
    publish(Channel, Exchange, Count),
    returned(Channel),
    consume(Connection, Queues, Count),
    missing(Connection),
    [#'queue.delete_ok'{} = amqp_channel:call(Channel, #'queue.delete'{queue = Queue}) || Queue <- Queues],
    #'exchange.delete_ok'{} = amqp_channel:call(Channel, #'exchange.delete'{exchange = Exchange}).

declare(Channel, Exchange, Queues) ->
    Declare = #'exchange.declare'{exchange = Exchange, type = <<"x-consistent-hash">>, durable = true},
    #'exchange.declare_ok'{} = amqp_channel:call(Channel, Declare),
    lists:foreach(
        fun({Queue, Weight}) ->
            #'queue.declare_ok'{} = amqp_channel:call(Channel, #'queue.declare'{queue = Queue, durable = true}),
            Bind = #'queue.bind'{queue = Queue, exchange = Exchange, routing_key = Weight},
            #'queue.bind_ok'{} = amqp_channel:call(Channel, Bind)
        end,
        lists:zip(Queues, [<<"1">>, <<"2">>])
    ).

publish(Channel, Exchange, Count) ->
    #'confirm.select_ok'{} = amqp_channel:call(Channel, #'confirm.select'{}),
    lists:foreach(
        fun(Number) ->
            Properties = #'P_basic'{delivery_mode = 2, headers = [{<<"number">>, signedint, Number}]},
            Body = <<"order ", (integer_to_binary(Number))/binary>>,
            Publish = #'basic.publish'{exchange = Exchange, routing_key = integer_to_binary(Number)},
            ok = amqp_channel:cast(Channel, Publish, #amqp_msg{props = Properties, payload = Body})
        end,
        lists:seq(1, Count)
    ),
    true = amqp_channel:wait_for_confirms(Channel, {10, second}),
    say("confirmed", Count).

returned(Channel) ->
    ok = amqp_channel:register_return_handler(Channel, self()),
    Publish = #'basic.publish'{exchange = <<"amq.direct">>, routing_key = <<"nowhere">>, mandatory = true},
    ok = amqp_channel:cast(Channel, Publish, #amqp_msg{payload = <<"lost">>}),
    receive
        {#'basic.return'{reply_code = Code, reply_text = Text}, _} ->
            say("returned", io_lib:format("~b ~s", [Code, Text]))
    after 10000 -> error(no_return)
    end.

consume(Connection, Queues, Count) ->
    {ok, Channel} = amqp_connection:open_channel(Connection),
    #'basic.qos_ok'{} = amqp_channel:call(Channel, #'basic.qos'{prefetch_count = 10}),
    [amqp_channel:subscribe(Channel, #'basic.consume'{queue = Queue}, self()) || Queue <- Queues],
    {#'basic.deliver'{delivery_tag = First}, _} = delivery(),
    ok = amqp_channel:call(Channel, #'basic.reject'{delivery_tag = First, requeue = true}),
    {Bodies, Redelivered} = acknowledge(Channel, Count, #{}, 0),
    say("consumed", maps:size(Bodies)),
    say("redelivered", Redelivered).

acknowledge(_, Count, Bodies, Redelivered) when map_size(Bodies) =:= Count ->
    {Bodies, Redelivered};
acknowledge(Channel, Count, Bodies, Redelivered) ->
    {#'basic.deliver'{delivery_tag = Tag, redelivered = Again}, #amqp_msg{payload = Body}} = delivery(),
    ok = amqp_channel:call(Channel, #'basic.ack'{delivery_tag = Tag}),
    acknowledge(Channel, Count, Bodies#{Body => true}, if Again -> Redelivered + 1; true -> Redelivered end).

delivery() ->
    receive
        {#'basic.deliver'{}, _} = Delivery -> Delivery
    after 10000 -> error(no_delivery)
    end.

missing(Connection) ->
    {ok, Channel} = amqp_connection:open_channel(Connection),
    Reason =
        try amqp_channel:call(Channel, #'queue.declare'{queue = <<"ghost">>, passive = true})
        catch exit:{{shutdown, {server_initiated_close, Code, Text}}, _} -> io_lib:format("~b ~s", [Code, Text])
        end,
    say("missing", Reason).

say(Name, Value) when is_integer(Value) -> io:format("~s: ~b~n", [Name, Value]);
say(Name, Value) -> io:format("~s: ~s~n", [Name, Value]).
