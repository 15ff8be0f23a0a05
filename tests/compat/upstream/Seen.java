package org.apache.kafka.common.test;

import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.withSettings;

import org.mockito.MockMakers;
import org.mockito.invocation.InvocationOnMock;

/** An object of a class of Apache Kafka, answering as far as one can see it from outside its process. */
class Seen {
    /** Ends the message of a test that asks for what is inside a broker's process: it cannot run here. */
    private static final String INSIDE = "is inside the broker's process";

    interface Answer {
        Object to(InvocationOnMock call);
    }

    /** Its constructor would make what a broker consists of. What Scala gives an argument that is left out is the class's own. */
    static <T> T as(Class<T> type, Answer answer) {
        return mock(type, withSettings().mockMaker(MockMakers.SUBCLASS).stubOnly().defaultAnswer(call ->
            call.getMethod().getName().contains("$default$") ? call.callRealMethod() : answer.to(call)));
    }

    static UnsupportedOperationException inside(InvocationOnMock call) {
        return inside("%s.%s".formatted(call.getMethod().getDeclaringClass().getSimpleName(), call.getMethod().getName()));
    }

    static UnsupportedOperationException inside(String what) {
        return new UnsupportedOperationException(what + " " + INSIDE);
    }
}
