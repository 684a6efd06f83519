#!/usr/bin/env escript
%% Spreads messages over four queues of different weight, by routing key, header or property: 100,000 unless told.
%% ERL_LIBS names the folder of the RabbitMQ Erlang client.
%%
%%     escript spreading.escript amqp://guest:guest@127.0.0.1:5672/%2F [routing-key | header | property] [COUNT]

-mode(compile).
-include_lib("amqp_client/include/amqp_client.hrl").

-define(WEIGHTS, [{<<"q1">>, <<"1">>}, {<<"q2">>, <<"1">>}, {<<"q3">>, <<"2">>}, {<<"q4">>, <<"2">>}]).

main([Url]) -> main([Url, "routing-key"]);
main([Url, Way]) -> main([Url, Way, "100000"]);
main([Url, Way, Keys]) ->
    logger:set_primary_config(level, none),
    {ok, _} = application:ensure_all_started(amqp_client),
    {ok, Parameters} = amqp_uri:parse(Url),
    {ok, Connection} = amqp_connection:start(Parameters),
    {ok, Channel} = amqp_connection:open_channel(Connection),
    Exchange = list_to_binary("erlang-" ++ Way),
    declare(Channel, Exchange, arguments(Way)),
    #'confirm.select_ok'{} = amqp_channel:call(Channel, #'confirm.select'{}),
    lists:foreach(fun(Number) -> publish(Channel, Exchange, Way, Number) end, lists:seq(0, list_to_integer(Keys) - 1)),
    true = amqp_channel:wait_for_confirms_or_die(Channel, 60),
    lists:foreach(
        fun({Queue, _}) ->
            Passive = #'queue.declare'{queue = Queue, passive = true},
            #'queue.declare_ok'{message_count = Count} = amqp_channel:call(Channel, Passive),
            io:format("~s ~b~n", [Queue, Count])
        end,
        ?WEIGHTS
    ),
    amqp_connection:close(Connection).

arguments("routing-key") -> [];
arguments("header") -> [{<<"hash-header">>, longstr, <<"hash-on">>}];
arguments("property") -> [{<<"hash-property">>, longstr, <<"message_id">>}].

declare(Channel, Exchange, Arguments) ->
    Declare = #'exchange.declare'{
        exchange = Exchange, type = <<"x-consistent-hash">>, durable = true, arguments = Arguments
    },
    #'exchange.declare_ok'{} = amqp_channel:call(Channel, Declare),
    lists:foreach(
        fun({Queue, Weight}) ->
            #'queue.declare_ok'{} = amqp_channel:call(Channel, #'queue.declare'{queue = Queue, durable = true}),
            #'queue.purge_ok'{} = amqp_channel:call(Channel, #'queue.purge'{queue = Queue}),
            %% The binding key is the weight.
            Bind = #'queue.bind'{queue = Queue, exchange = Exchange, routing_key = Weight},
            #'queue.bind_ok'{} = amqp_channel:call(Channel, Bind)
        end,
        ?WEIGHTS
    ).

publish(Channel, Exchange, Way, Number) ->
    Key = integer_to_binary(Number),
    {RoutingKey, Properties} =
        case Way of
            "routing-key" -> {Key, #'P_basic'{}};
            "header" -> {<<>>, #'P_basic'{headers = [{<<"hash-on">>, longstr, Key}]}};
            "property" -> {<<>>, #'P_basic'{message_id = Key}}
        end,
    Publish = #'basic.publish'{exchange = Exchange, routing_key = RoutingKey},
    ok = amqp_channel:call(Channel, Publish, #amqp_msg{props = Properties, payload = <<>>}),
    Number rem 2000 =/= 0 orelse amqp_channel:wait_for_confirms_or_die(Channel, 60).
