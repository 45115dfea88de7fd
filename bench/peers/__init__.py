"""Who else is measured: programs of other libraries that do the same work, each in an environment
of its own.

environments  makes those environments from locks: virtual environments, jars, compiled programs
contenders    starts them

librdkafka  copier.c: the C library of the binding in use, without Python
streams     Copier.java: Kafka Streams, exactly_once_v2
quixstreams copier.py: Quix Streams, exactly-once
aiokafka    copier.py: aiokafka, transactions by hand

All take the same arguments: ``--servers``, ``--group``, ``--source``, ``--target``, ``--records``
(how many there are to do; 0: until SIGTERM), ``--headers`` (1: the two headers are added, as by the
service; 0: they are not) and ``--interval-ms`` (between commits).
"""
