import java.io.IOException;
import java.net.Authenticator;
import java.net.HttpURLConnection;
import java.net.PasswordAuthentication;
import java.net.URI;

/** Get URL [USER PASSWORD] prints the status and reason of the response, or the error, as HttpURLConnection reports it. */
public class Get {
    public static void main(String[] args) throws Exception {
        if (args.length > 1) {
            Authenticator.setDefault(new Once(new PasswordAuthentication(args[1], args[2].toCharArray())));
        }
        HttpURLConnection c = (HttpURLConnection) URI.create(args[0]).toURL().openConnection();
        try {
            System.out.println(c.getResponseCode() + " " + c.getHeaderField("Robotsproxy-Reason"));
        } catch (IOException e) {
            System.out.println(e);
        }
    }

    /** Once gives a password to a proxy that asks for one, and not again if it is wrong. */
    static class Once extends Authenticator {
        private PasswordAuthentication password;

        Once(PasswordAuthentication password) {
            this.password = password;
        }

        @Override
        protected PasswordAuthentication getPasswordAuthentication() {
            PasswordAuthentication p = getRequestorType() == RequestorType.PROXY ? password : null;
            password = null;
            return p;
        }
    }
}
